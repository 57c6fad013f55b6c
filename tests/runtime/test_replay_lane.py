"""The replay lane: the transitions it stores, when it acts and updates, and resumes with new environments."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from rl_training.algorithms import DQNAlgorithm, DQNConfig
from rl_training.algorithms.core.config import ReplayConfig
from rl_training.data import ReplayBuffer
from rl_training.envs.pools.members import PopulationPool
from rl_training.envs.pools.pool import EnvPool
from rl_training.runtime.checkpoints.reading import read_checkpoint
from rl_training.runtime.checkpoints.replay_segments import ReplaySegments
from rl_training.runtime.checkpoints.writing import save_checkpoint
from rl_training.runtime.lanes import Actor, LaneContext, ReplayLane
from rl_training.runtime.policies import RandomPolicy
from rl_training.runtime.population import MemberLane
from rl_training.types import Action


class Clock(gym.Env[Any, Any]):
    """Shows a number that no environment has shown before, so that no episode can be lived again."""

    observation_space = gym.spaces.Box(0, 1e6, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    ticks = itertools.count()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.array([next(self.ticks)], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.array([next(self.ticks)], np.float32), 1.0, False, False, {}


def lane_of(pool: Any, members: int | None = None) -> ReplayLane:
    actor = Actor(RandomPolicy(pool.spec), pool, torch.Generator(), torch.device("cpu"))
    return ReplayLane(actor, ReplayBuffer(100, pool.spec, stride=2, members=members), ReplayConfig(collect_steps=3))


class Counting(gym.Env[Any, Any]):
    """Shows 10 * episode + step. Odd episodes terminate after 2 steps, even ones are truncated after 3."""

    observation_space = gym.spaces.Box(0, 1e6, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    episode = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.steps = self.episode + 1, 0
        return self._shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        odd = self.episode % 2 == 1
        return self._shown(), 0.5 * self.steps, odd and self.steps == 2, not odd and self.steps == 3, {}

    def _shown(self) -> Any:
        return np.array([10 * self.episode + self.steps], np.float32)


def test_transitions_are_stored_with_their_own_next_observation_and_their_kind_of_end():
    pool = EnvPool(Counting)
    actor = Actor(RandomPolicy(pool.spec), pool, torch.Generator(), torch.device("cpu"))
    lane = ReplayLane(actor, ReplayBuffer(100, pool.spec), ReplayConfig(collect_steps=6))
    lane.collect(1)
    rows = lane.replay.rows(0, 6)
    assert rows["obs"].flatten().tolist() == [10, 11, 20, 21, 22, 30]
    assert rows["next_obs"].flatten().tolist() == [11, 12, 21, 22, 23, 31]
    assert rows["rewards"].tolist() == [0.5, 1, 0.5, 1, 1.5, 0.5]
    assert rows["dones"].tolist() == [0, 1, 0, 0, 0, 0]
    assert rows["truncated"].tolist() == [0, 0, 0, 0, 1, 0]


class Constant:
    """Takes action 1."""

    def act(self, obs: Any, memory: Any = None, *, deterministic: bool = False, generator: Any = None) -> Action:
        return Action(torch.ones(len(obs), dtype=torch.int64))


class Recurrent(Constant):
    def act(self, obs: Any, memory: Any = None, *, deterministic: bool = False, generator: Any = None) -> Action:
        return super().act(obs)._replace(memory={"is_first": torch.zeros(len(obs))})


def test_a_policys_memory_starts_anew_after_terminated_and_truncated_episodes():
    pool = EnvPool(Counting)
    actor = Actor(Recurrent(), pool, torch.Generator(), torch.device("cpu"))
    flags = []
    for _ in range(6):
        actor.step(actor.choose())
        assert actor.memory.rows is not None
        flags.append(actor.memory.rows["is_first"].item())
    assert flags == [0, 1, 0, 0, 1, 0]


def test_actions_are_random_and_no_update_is_due_up_to_learning_starts():
    pool = EnvPool(Counting)
    actor = Actor(Constant(), pool, torch.Generator().manual_seed(0), torch.device("cpu"))
    config = ReplayConfig(learning_starts=20, updates_per_collect=3)
    lane = ReplayLane(actor, ReplayBuffer(100, pool.spec), config)
    due = []
    for _ in range(40):
        lane.collect(1)
        due.append(lane.due())
    assert due == [0] * 20 + [3] * 20
    actions = lane.replay.rows(0, 40)["actions"]
    assert set(actions[:20].tolist()) == {0, 1}
    assert actions[20:].tolist() == [1] * 20


def test_the_replay_buffer_is_built_from_the_options():
    pool, config = EnvPool(Counting, 2), DQNConfig(n_step=3, gamma=0.9, buffer_size=50, prioritized=True)
    learner = DQNAlgorithm.build(pool.spec, config)
    lane = ReplayLane.build(LaneContext([learner], learner, pool.spec, config, 0, torch.device("cpu"), pool=pool))
    replay = lane.replay
    assert (replay.capacity, replay.stride, replay.n_step, replay.gamma) == (50, 2, 3, 0.9)
    assert replay.priorities is not None
    assert replay.members is None


def test_what_was_lived_ends_where_the_environments_start_anew():
    lane, resumed = lane_of(EnvPool(Clock, 2)), lane_of(EnvPool(Clock, 2))
    lane.collect(1)
    resumed.replay.restore(lane.replay.rows(0, 6), 0)
    assert len(resumed.load_state_dict(lane.state_dict())) == 2
    resumed.collect(1)
    assert resumed.replay.rows(0, 12)["truncated"].tolist() == [0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0]


def test_a_member_acts_on_what_its_new_environments_show_and_the_others_go_on():
    pool = PopulationPool(EnvPool(Clock, 4, seed=(0, 1)))
    lane = lane_of(pool, members=2)
    lane.collect(1)
    state = MemberLane(lane, 1).state_dict()
    assert MemberLane(lane, 1).load_state_dict(state)
    assert lane.actor.obs[1].numpy().tolist() == pool.pools[1].obs.tolist()
    assert lane.replay.columns["truncated"][:, :6].tolist() == [[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]]


def test_rows_that_changed_are_written_anew(tmp_path):
    lane = lane_of(EnvPool(Clock, 2))
    lane.collect(1)
    segments = ReplaySegments(lane.replay.parts())
    save_checkpoint(tmp_path, 1, {}, info={}, replay=segments)
    lane.replay.mark_boundary()
    segments.forget()
    saved = read_checkpoint(save_checkpoint(tmp_path, 2, {}, info={}, replay=segments))
    assert saved.tensors("replay-000000.safetensors")["truncated"].tolist() == [0, 0, 0, 0, 1, 1]
