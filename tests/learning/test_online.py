"""Online learners, each far above what random play scores."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

from rl_training.experiment.agent import load_agent
from rl_training.runtime.evaluation import evaluate
from rl_training.types import Action, Policy

SMALL = ["schedules={}", "hidden_sizes=[64,64]", "batch_size=64"]
HALF = "updates_per_collect=32"  # of what most are packaged with
pytestmark = [pytest.mark.learning, pytest.mark.timeout(400)]  # on two slow or busy cores they take long


class Dot(gym.Env[Any, Any]):
    """A bright dot somewhere in a dark picture: naming its quarter pays 1 a step."""

    observation_space = gym.spaces.Box(0, 255, (1, 8, 8), np.uint8)
    action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._picture(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        right = action == self.quarter
        return self._picture(), float(right), False, False, {}

    def _picture(self) -> Any:
        row, column = self.np_random.integers(0, 8, 2)
        self.quarter = 2 * (row // 4) + column // 4
        picture = np.zeros((1, 8, 8), np.uint8)
        picture[0, row, column] = 255
        return picture


class TwoStates(gym.Env[Any, Any]):
    """Action 0 leads from the first state to the second. All other steps end the episode and pay a reward."""

    observation_space = gym.spaces.Box(0, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(3)
    rewards = ((0.0, 0.5, 1.0), (0.9, 0.9, 0.4))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = 0
        return np.eye(2, dtype=np.float32)[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward, ended = self.rewards[self.state][action], self.state == 1 or action > 0
        self.state = 1
        return np.eye(2, dtype=np.float32)[1], reward, bool(ended), False, {}


gym.register("Dot-v0", lambda **_: Dot(), max_episode_steps=20)
gym.register("TwoStates-v0", lambda **_: TwoStates())


@pytest.mark.slow
def test_sac_swings_the_pendulum_up(reaches):
    shortened = ("total_timesteps=2500", "learning_starts=500", "batch_size=64", "hidden_sizes=[64,64]")
    faster = ("learning_rate=0.003", "tau=0.02", "gamma=0.95")
    assert reaches(-300, "sac/pendulum", *shortened, *faster)  # random play scores about -1,240


@pytest.mark.slow
def test_sac_swings_it_up_at_the_rates_it_is_packaged_with(final_return):
    assert final_return("sac/pendulum", "total_timesteps=5000", "batch_size=128", "hidden_sizes=[64,64]") > -300


@pytest.mark.slow
def test_td3_swings_it_up_by_noise_on_its_actions(reaches):
    shortened = ("total_timesteps=3000", "learning_starts=500", "batch_size=64", "hidden_sizes=[64,64]")
    faster = ("learning_rate=0.003", "tau=0.02", "gamma=0.95")
    assert reaches(-300, "td3/pendulum", *shortened, *faster)


@pytest.mark.slow
def test_tqc_swings_it_up(reaches):
    shortened = ("total_timesteps=2500", "learning_starts=500", "batch_size=64")
    few = ("num_critics=2", "num_quantiles=8", "top_quantiles_to_drop_per_net=1")
    faster = ("learning_rate=0.003", "tau=0.02", "gamma=0.95")
    assert reaches(-300, "tqc/pendulum", *shortened, *few, *faster)


@pytest.mark.slow
def test_crossq_swings_it_up_without_target_networks(reaches):
    shortened = ("total_timesteps=2500", "batch_size=64", "critic_hidden_sizes=[64,64]", "gamma=0.95")
    assert reaches(-300, "crossq/pendulum", *shortened, seeds=(1, 2, 0))  # seed 0 needs longer


@pytest.mark.slow
def test_sac_with_simba_networks_swings_it_up(reaches):
    shortened = ("total_timesteps=2000", "learning_starts=500", "batch_size=64")
    faster = ("learning_rate=0.003", "tau=0.02", "gamma=0.95", "temperature=0.1", "weight_decay=0.01")
    network = ("network.kind=simba", "network.hidden_sizes=[16]", "network.critic_hidden_sizes=[32]")
    assert reaches(-300, "sac/pendulum", *shortened, *faster, *network)


@pytest.mark.slow
def test_sac_with_simba_v2_networks_swings_it_up(reaches):
    shortened = ("total_timesteps=2000", "learning_starts=500", "batch_size=64")
    faster = ("learning_rate=0.003", "tau=0.02", "gamma=0.95", "temperature=0.1")
    network = ("network.kind=simba_v2", "network.hidden_sizes=[16]", "network.critic_hidden_sizes=[32]")
    assert reaches(-300, "sac/pendulum", *shortened, *faster, *network)


@pytest.mark.slow
def test_redq_swings_it_up_with_far_fewer_steps(final_return):
    assert final_return("redq/pendulum", "total_timesteps=750") > -500  # where sac scores below -1,100


@pytest.mark.slow
def test_mbpo_swings_it_up_with_far_fewer_steps(reaches):
    shortened = ("total_timesteps=700", "model_members=3", "model_elites=2", "model_max_epochs=80")
    faster = ("updates_per_collect=8", "learning_rate=0.003", "tau=0.02")
    assert reaches(-500, "mbpo/pendulum", *shortened, *faster)  # where sac and random play score below -1,200


@pytest.mark.slow
def test_mbpo_swings_it_up_as_it_is_packaged(final_return):
    assert final_return("mbpo/pendulum", "total_timesteps=2000") > -300


@pytest.mark.slow
def test_dqn_balances_the_pole(final_return):
    assert final_return("dqn/cartpole", "total_timesteps=5000", HALF, *SMALL) > 70  # random play scores about 22


@pytest.mark.slow
def test_discrete_sac_balances_it_with_a_tuned_temperature(final_return):
    shortened = (
        "total_timesteps=3000",
        "schedules={}",
        "batch_size=64",
        "learning_starts=500",
        "updates_per_collect=2",
    )
    assert final_return("sac/cartpole", *shortened, "temperature=0.1", "tune_temperature=true") > 100


def test_discrete_sac_learns_the_policy_of_maximum_entropy(final_return, tmp_path):
    shortened = ("total_timesteps=2000", "learning_starts=200", "hidden_sizes=[32]", "learning_rate=0.005")
    task = ("temperature=0.5", "tune_temperature=false", "gamma=1", "n_step=1")
    final_return("sac/cartpole", *shortened, *task, "updates_per_collect=2", env_id="TwoStates-v0")
    # Soft Q-values: the rewards, and for action 0 of the first state the soft value of the second.
    rewards = torch.tensor(TwoStates.rewards)
    rewards[0, 0] = 0.5 * (rewards[1] / 0.5).logsumexp(-1)
    learner: Any = load_agent(tmp_path / "run").learner
    policy = learner.model.actor(torch.eye(2)).logits.softmax(-1)
    torch.testing.assert_close(policy, (rewards / 0.5).softmax(-1), atol=0.05, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("learner", "shortened"),
    [
        ("c51", [HALF, "total_timesteps=5000"]),
        ("fqf", [HALF, "total_timesteps=3500", "num_quantiles=8"]),
        ("iqn", [HALF, "total_timesteps=6500", "num_quantiles=8"]),
        ("qr_dqn", ["total_timesteps=4000"]),
        ("rainbow", [HALF, "total_timesteps=3000"]),
    ],
)
def test_the_rest_of_its_family_balances_it_too(learner, shortened, final_return):
    assert final_return(f"{learner}/cartpole", *shortened, *SMALL) > 100  # they reach 130 to 250


def test_ppo_balances_the_pole(final_return):
    assert final_return("ppo/cartpole", "total_timesteps=20480", "schedules={}") > 400


@pytest.mark.slow
def test_pqn_balances_the_pole(final_return):
    shortened = ("total_timesteps=30720", "num_envs=16", "num_steps=32", "hidden_sizes=[64,64]", "learning_rate=0.002")
    assert final_return("pqn/cartpole", *shortened) > 150  # without terminations in its targets it scores about 20


def test_pqn_learns_from_pixels(final_return):
    pictures = {"env_id": "Dot-v0", "env_backend": "gymnasium", "total_timesteps": 8192, "num_envs": 16}
    shortened = ("num_steps=16", "hidden_sizes=[32]", "learning_rate=0.005", "gamma=0.5", "reward_scale=1")
    assert final_return("pqn/cartpole", *shortened, **pictures) > 17  # of 20; guesses get 5


def test_ppo_learns_to_make_two_choices_at_once(final_return):
    choices = {"env_id": "Levers-v0", "total_timesteps": 8192, "num_envs": 8}
    scaled = ("schedules={}", "num_steps=32", "normalize_obs=true", "normalize_rewards=true", "target_kl=0.02")
    assert final_return("ppo/cartpole", *scaled, **choices) > 17  # of 20; guesses get 20 (1/3 + 1/2) / 2 = 8.3


def test_ppo_learns_from_pixels(final_return):
    pictures = {"env_id": "Dot-v0", "total_timesteps": 4096, "num_envs": 8}
    shortened = ("schedules={}", "num_steps=32", "epochs=10", "batch_size=64", "hidden_sizes=[]")
    assert final_return("ppo/cartpole", *shortened, **pictures) > 17  # of 20; guesses get 5


@pytest.mark.slow
def test_ppo_swings_the_pendulum_up_with_continuous_actions(final_return):
    assert final_return("ppo/pendulum") > -350


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_dreamer_catches_what_falls_by_its_pixels(final_return):
    assert final_return("dreamer/catch") > 0.8  # it reaches 1; random play scores -0.6


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_dreamer_puts_a_picture_and_a_vector_together(reaches):
    assert reaches(0.9, "dreamer/signed_side")  # of 1; by either of them alone it is 0


class Forgetful:
    """A policy whose memory is empty at every step."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def act(self, obs: Tensor, memory: Any = None, **options: Any) -> Action:
        return self.policy.act(obs, None, **options)._replace(memory=None)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_dreamer_answers_by_what_it_remembers(final_return, tmp_path):
    assert final_return("dreamer/cue_memory") > 0.9
    learner = load_agent(tmp_path / "run").learner
    forgetful = evaluate(Forgetful(learner), "CueMemory-v0", episodes=200, seed=99)
    assert abs(np.mean(forgetful.returns)) < 0.3  # random actions, whose standard error is 1 / sqrt(200) = 0.07
