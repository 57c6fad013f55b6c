"""The replay lane after a resume in which its environments had to start anew."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from rl_training.algorithms.core.config import ReplayConfig
from rl_training.data import ReplayBuffer
from rl_training.envs.pool import EnvPool
from rl_training.runtime.checkpoints.reading import read_checkpoint
from rl_training.runtime.checkpoints.replay_segments import ReplaySegments
from rl_training.runtime.checkpoints.writing import save_checkpoint
from rl_training.runtime.lanes import Actor, ReplayLane
from rl_training.runtime.policies import RandomPolicy
from rl_training.runtime.population import MemberLane, PoolGroup


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


def test_what_was_lived_ends_where_the_environments_start_anew():
    lane, resumed = lane_of(EnvPool(Clock, 2)), lane_of(EnvPool(Clock, 2))
    lane.collect(1)
    resumed.replay.restore(lane.replay.rows(0, 6), 0)
    assert len(resumed.load_state_dict(lane.state_dict())) == 2
    resumed.collect(1)
    assert resumed.replay.rows(0, 12)["truncated"].tolist() == [0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0]


def test_a_member_acts_on_what_its_new_environments_show_and_the_others_go_on():
    pool = PoolGroup([EnvPool(Clock, 2), EnvPool(Clock, 2)])
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
