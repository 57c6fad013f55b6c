"""Environments that change the action array they are given."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training import check_env
from rl_training.envs.pools.pool import EnvPool


class Doubles(gym.Env[Any, Any]):
    """Adds twice the action to its position, by doubling the array in place."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gym.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.position = np.zeros(1, np.float32)
        return self.position.copy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        action *= 2
        self.position += action
        return self.position.copy(), float(action[0]), False, False, {}


class Copies(Doubles):
    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return super().step(action.copy())


@pytest.mark.parametrize("resumes", [1, 2])
def test_a_running_episode_is_replayed_with_the_actions_that_were_given(resumes):
    actions = np.random.default_rng(0).uniform(-1, 1, (20, 2, 1)).astype(np.float32)
    with EnvPool(Doubles, 2, seed=0) as pool, EnvPool(Doubles, 2, seed=0) as fresh:
        pool.reset()
        for action in actions:
            pool.step(action)
        state = pool.snapshot()
        for _ in range(resumes):
            assert fresh.restore(state) == []
            np.testing.assert_array_equal(fresh.obs, pool.obs)
            state = fresh.snapshot()


def test_the_check_notes_a_changed_action():
    notes = check_env(lambda: gym.wrappers.TimeLimit(Doubles(), 10), steps=20).notes
    (note,) = [each for each in notes if each.code == "action_changed"]
    assert "`step` changes the action that it was given: change a copy, action.copy()" in str(note)
    notes = check_env(lambda: gym.wrappers.TimeLimit(Copies(), 10), steps=20).notes
    assert "action_changed" not in [each.code for each in notes]
