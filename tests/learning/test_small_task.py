"""Every algorithm with a replay buffer or a dataset learns a small task. Those on known tasks are in `make learn`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training.data.writers import save_npz
from rl_training.runtime.recipes import roll_dataset

pytestmark = [pytest.mark.learning, pytest.mark.timeout(400)]
# Random actions score 11, none 12, one that never changes 3, and -3 * place - 3 * speed, clipped, 23.
LEARNT = 17
GAMMA = "gamma=0.9"
FAST = ("learning_rate=0.003", "batch_size=64", GAMMA)
SMALL = (*FAST, "tau=0.05", "hidden_sizes=[32,32]")
ONLINE = ("learning_starts=200", "schedules={}")


class Slide(gym.Env[Any, Any]):
    """A body with a place and a speed is pushed to the middle.

    The reward of a step depends on the place before it alone, so only the values of later states tell actions apart.
    """

    observation_space = gym.spaces.Box(-5, 5, (2,), np.float32)

    def __init__(self, discrete: bool = False) -> None:
        self.action_space = gym.spaces.Discrete(3) if discrete else gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.speed = self.np_random.choice((-1.0, 1.0)) * self.np_random.uniform(0.8, 1.2), 0.0
        return self._observed(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        push = float(action) - 1 if isinstance(self.action_space, gym.spaces.Discrete) else float(action[0])
        reward = 1 - abs(self.place) / 2
        self.speed = 0.9 * self.speed + 0.2 * push
        self.place += 0.5 * self.speed
        return self._observed(), reward, abs(self.place) > 2, False, {}

    def _observed(self) -> Any:
        return np.array([self.place, self.speed], np.float32)


gym.register("Slide-v0", lambda **options: Slide(**options), max_episode_steps=25)


@pytest.fixture(scope="module")
def random_rows(tmp_path_factory) -> dict[bool, str]:
    """4,000 steps of a random policy, by whether actions are discrete."""
    paths = {discrete: tmp_path_factory.mktemp("data") / f"slide_{discrete}.npz" for discrete in (False, True)}
    for discrete, path in paths.items():
        save_npz(roll_dataset("Slide-v0", rows=4_000, env_kwargs={"discrete": discrete}), path)
    return {discrete: str(path) for discrete, path in paths.items()}


@pytest.mark.parametrize(
    ("learner", "options"),
    [
        ("iql", ()),
        ("xql", ("rewards.scale=1",)),
        ("td3_bc", ()),
        ("rebrac", ("actor_bc_coef=0.1",)),
        ("awac", ()),
        ("edac", ("num_critics=2",)),
        ("fql", ()),
        ("cql", ("num_cql_samples=2", "actor_learning_rate=0.003")),
        ("cal_ql", ("num_cql_samples=2", "actor_learning_rate=0.003")),
    ],
)
def test_it_learns_from_random_rows(learner, options, reaches, random_rows):
    task = {"env_id": "Slide-v0", "dataset": random_rows[False], "total_timesteps": 400}
    assert reaches(LEARNT, f"{learner}/pendulum", *SMALL, *options, **task)


@pytest.mark.parametrize(
    ("learner", "options"),
    [("iql", ("expectile=0.9", "beta=10")), ("xql", ("loss_temperature=0.5", "beta=10")), ("bcq", ()), ("cql", ())],
)
def test_it_learns_discrete_actions_from_random_rows(learner, options, reaches, random_rows):
    task = {"env_id": "Slide-v0", "env_kwargs": {"discrete": True}, "dataset": random_rows[True]}
    assert reaches(LEARNT, f"{learner}/cartpole", *SMALL, *options, **task, total_timesteps=600)


def test_bc_of_the_same_rows_does_not(final_return, random_rows):
    task = {"env_id": "Slide-v0", "dataset": random_rows[False], "total_timesteps": 400}
    assert final_return("bc/pendulum", "batch_size=64", "hidden_sizes=[32,32]", **task) < 14


def test_without_values_of_later_states_nothing_is_learnt(final_return, random_rows):
    task = {"env_id": "Slide-v0", "dataset": random_rows[False], "total_timesteps": 400}
    assert final_return("iql/pendulum", *SMALL, "gamma=0", **task) < 15


SIMBA = ("network.hidden_sizes=[16]", "network.critic_hidden_sizes=[32]", "temperature=0.1", "tau=0.05")


@pytest.mark.parametrize(
    ("learner", "options"),
    [
        ("sac", ("total_timesteps=500", *SMALL, "temperature=0.1")),
        ("td3", ("total_timesteps=700", *SMALL)),
        ("tqc", ("total_timesteps=500", *SMALL, "critic_hidden_sizes=[32,32]", "num_quantiles=8", "temperature=0.1",
                 "top_quantiles_to_drop_per_net=1")),
        ("crossq", ("total_timesteps=600", *FAST, "hidden_sizes=[32,32]", "critic_hidden_sizes=[32,32]")),
        ("redq", ("total_timesteps=320", *SMALL, "updates_per_collect=2", "num_critics=3", "policy_delay=1")),
        ("mbpo", ("total_timesteps=340", *SMALL, "model_members=3", "model_elites=2", "model_max_epochs=60",
                  "rollout_batch_size=2000", "model_hidden_sizes=[32,32]", "updates_per_collect=5", "temperature=0.1")),
    ],
)  # fmt: skip
def test_it_learns_by_acting(learner, options, reaches):
    assert reaches(LEARNT, f"{learner}/pendulum", *ONLINE, *options, env_id="Slide-v0")


@pytest.mark.parametrize("kind", [pytest.param("simba", marks=pytest.mark.slow), "simba_v2"])
def test_sac_learns_with_other_networks(kind, reaches):
    options = (*ONLINE, *FAST, *SIMBA, f"network.kind={kind}", "total_timesteps=500")
    assert reaches(LEARNT, "sac/pendulum", *options, env_id="Slide-v0")


def test_discrete_sac_learns_with_a_tuned_temperature(reaches):
    tuned = (
        "tune_temperature=true",
        "temperature=0.1",
        "collect_steps=4",
        "updates_per_collect=4",
        "total_timesteps=600",
    )
    task = {"env_id": "Slide-v0", "env_kwargs": {"discrete": True}}
    assert reaches(LEARNT, "sac/cartpole", *ONLINE, *SMALL, *tuned, **task)


@pytest.mark.parametrize("learner", ["dqn", "c51", "fqf", "iqn", "qr_dqn", "rainbow"])
def test_it_learns_discrete_actions_by_acting(learner, reaches):
    few = () if learner in ("dqn", "c51", "rainbow") else ("num_quantiles=8",)
    pace = ("collect_steps=4", "updates_per_collect=4", "hidden_sizes=[32,32]", "total_timesteps=500", *few)
    assert reaches(
        LEARNT, f"{learner}/cartpole", *ONLINE, *FAST, *pace, env_id="Slide-v0", env_kwargs={"discrete": True}
    )
