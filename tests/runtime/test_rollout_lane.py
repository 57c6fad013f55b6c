"""On-policy rollouts: what the learner is shown of them, and that all of it comes back when a run is resumed."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_training import streams
from rl_training.algorithms import PPOAlgorithm, PPOConfig, PQNAlgorithm, PQNConfig
from rl_training.data import RolloutBuffer
from rl_training.envs.pools.pool import EnvPool
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.run import resume_run, run_training
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks.training import StopAtStep
from rl_training.runtime.lanes import Actor, RolloutLane
from rl_training.types import Batch


class Clock(gym.Env[Any, Any]):
    """Observes the time and pays 1 a step; at 3 it ends, as asked by a time limit or for good."""

    observation_space = gym.spaces.Box(0, 9, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, truncates: bool) -> None:
        self.truncates, self.time = truncates, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        over = self.time == 3
        return np.full(1, self.time, np.float32), 1.0, over and not self.truncates, over and self.truncates, {}


class Shown(PPOAlgorithm):
    """Values an observation at itself, and keeps what it has made of the last rollout."""

    def prepare(self, batch: Batch) -> Batch:
        self.seen, self.prepared = batch, super().prepare(batch)
        return self.prepared


def new_lane(*, truncates: bool = True, **options: Any) -> tuple[RolloutLane, Shown]:
    config = PPOConfig(**{"num_steps": 4, "batch_size": 4, "hidden_sizes": (), "gamma": 0.5, **options})
    pool = EnvPool(lambda: Clock(truncates), 1)
    learner = Shown.build(pool.spec, config)
    learner.model.value[0].weight.data.fill_(1.0)
    actor = Actor(learner, pool, streams.generator(0, "exploration"), torch.device("cpu"))
    return RolloutLane(learner, actor, RolloutBuffer(), config), learner


# gamma 0.5, lambda 0; a state's value is its time. The fourth step is the first of the next episode.
@pytest.mark.parametrize(
    ("truncates", "third"),
    [
        (True, 1 + 0.5 * 3 - 2),  # the last observation, 3, still has a value, and it is not the next episode's 0
        (False, 1 - 2),
    ],
)
def test_a_time_limit_is_bootstrapped_by_the_last_observation_itself(truncates, third):
    lane, learner = new_lane(truncates=truncates, gae_lambda=0.0)
    lane.collect(1)
    first, second = 1 + 0.5 * 1 - 0, 1 + 0.5 * 2 - 1
    assert learner.prepared["advantages"].flatten().tolist() == [first, second, third, first]


@pytest.mark.parametrize(("truncates", "third"), [(True, 1 + 0.5 * 3), (False, 1)])
def test_targets_of_pqn_bootstrap_at_a_time_limit_by_the_last_observation_itself(truncates, third):
    config = PQNConfig(num_steps=4, batch_size=4, hidden_sizes=(), gamma=0.5, q_lambda=0.5)
    pool = EnvPool(lambda: Clock(truncates), 1)
    learner = PQNAlgorithm.build(pool.spec, config)
    learner.model.q.head.advantage.layers[0].weight.data.fill_(1.0)  # Q(s, a) = s
    actor = Actor(learner, pool, streams.generator(0, "exploration"), torch.device("cpu"))
    lane = RolloutLane(learner, actor, RolloutBuffer(), config)
    lane.collect(1)
    second = 1 + 0.5 * (0.5 * 2 + 0.5 * third)
    first, fourth = 1 + 0.5 * (0.5 * 1 + 0.5 * second), 1 + 0.5 * 1
    batch = lane.source.sample(4)
    assert sorted(batch["returns"].tolist()) == sorted([first, second, third, fourth])


def test_every_step_is_used_once_in_each_epoch():
    lane, _ = new_lane(num_steps=8, epochs=3)
    lane.collect(1)
    assert lane.due() == 3 * 8 // 4  # batches of 4


def test_scaled_rewards_are_what_the_learner_is_paid_and_sums_end_with_episodes():
    lane, learner = new_lane(normalize_rewards=True)
    lane.collect(1)
    sums = [1, 1.5, 1.75, 1]  # the third step is cut by the time limit
    np.testing.assert_allclose(learner.seen["rewards"].flatten(), 1 / np.std(sums), rtol=1e-5)
    lane.collect(1)
    sums += [1.5, 1.75, 1, 1.5]
    np.testing.assert_allclose(learner.seen["rewards"].flatten(), 1 / np.std(sums), rtol=1e-5)


def test_environments_that_start_anew_begin_new_sums():
    lane, _ = new_lane(normalize_rewards=True)
    lane.collect(1)
    state = lane.state_dict()
    state["actor"]["envs"]["envs"]["0"]["kind"] = "of another kind"
    other, _ = new_lane(normalize_rewards=True)
    assert other.load_state_dict(state)
    assert other.scale is not None
    assert other.scale.sums.tolist() == [0.0]
    assert other.scale.statistics.count == 4


def test_a_cut_rollout_is_truncated_where_the_environments_start_anew():
    (lane, _), (other, learner) = new_lane(), new_lane()
    lane.stop_by = 0.0
    assert lane.collect(1).cut  # after one step of four
    state = lane.state_dict()
    state["actor"]["envs"]["envs"]["0"]["kind"] = "of another kind"
    assert other.load_state_dict(state)
    other.collect(1)
    assert learner.seen["obs"].flatten().tolist() == [0, 0, 1, 2]
    assert learner.seen["truncated"].flatten().tolist() == [1, 0, 0, 1]  # the last one is by the time limit
    assert not learner.seen["dones"].any()


def test_sums_before_a_cut_rollout_are_kept_where_the_environments_start_anew():
    (lane, _), (other, learner) = new_lane(normalize_rewards=True), new_lane(normalize_rewards=True)
    lane.collect(1)
    lane.stop_by = 0.0
    assert lane.collect(1).cut  # after the second step of an episode
    state = lane.state_dict()
    state["actor"]["envs"]["envs"]["0"]["kind"] = "of another kind"
    assert other.load_state_dict(state)
    other.collect(1)
    sums = [1, 1.5, 1.75, 1, 1.5, 1, 1.5, 1.75]  # the cut ends the second episode
    np.testing.assert_allclose(learner.seen["rewards"].flatten(), 1 / np.std(sums), rtol=1e-5)


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "Levers-v0"])
def test_every_statistic_comes_back_when_a_run_is_resumed(env_id, tmp_path):
    options = {"num_steps": 8, "epochs": 4, "batch_size": 16, "hidden_sizes": [8], "learning_rate": 0.01,
               "normalize_obs": True, "normalize_rewards": True, "target_kl": 0.003}  # fmt: skip
    moving = {"learning_rate": {"kind": "linear"}, "clip_range": {"kind": "linear", "end": 0.05}}
    config = {"algo": "ppo", "env_id": env_id, "num_envs": 2, "total_timesteps": 192, "eval_episodes": 1,
              "schedules": moving, "env_kwargs": {"max_episode_steps": 30}, "algo_kwargs": options}  # fmt: skip
    whole = run_training(parse_config({**config, "output_dir": str(tmp_path / "whole")}))
    halved = run_training(parse_config({**config, "output_dir": str(tmp_path / "halved")}), callbacks=[StopAtStep(80)])
    assert resume_run(halved.run_dir).status == "finished"
    assert compare_runs(whole.run_dir, halved.run_dir) == []
    assert whole.updates < 192 // 16 * 4  # some were left undone
