"""Masks that only `step` returns, and environments without the masks that an agent was trained with."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training import PPO, check_env

TINY: dict[str, Any] = {"total_timesteps": 16, "num_steps": 8, "batch_size": 8, "epochs": 1, "hidden_sizes": [8],
                        "eval_interval": 0}  # fmt: skip
LATE = "`step` returns an action mask in info, but `reset` does not, so masks are not used: return it from both"


class Masked(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(3)

    def __init__(self, reset: bool = True, step: bool = True) -> None:
        self.given = {"reset": reset, "step": step}

    def info(self, method: str) -> dict[str, Any]:
        return {"action_mask": np.array([0, 1, 1])} if self.given[method] else {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), self.info("reset")

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.zeros(2, np.float32), 0.0, False, self.steps == 5, self.info("step")


class Late(Masked):
    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return super().step(action)


def test_training_warns_once_that_late_masks_are_not_used(tmp_path, capsys):
    PPO(lambda: Late(reset=False), num_envs=2, output_dir=str(tmp_path), **TINY).learn()
    assert capsys.readouterr().err.count(LATE) == 1


@pytest.mark.parametrize(("given", "count"), [((True, True), 0), ((False, True), 1), ((False, False), 0)])
def test_the_check_reports_late_masks(given, count):
    found = [each.sentence for each in check_env(lambda: Masked(*given), steps=20).mistakes]
    assert found == [LATE] * count


def test_an_evaluation_without_masks_reports_that_the_training_had_them(tmp_path):
    agent = PPO(Masked, output_dir=str(tmp_path), **TINY).learn()
    with pytest.raises(Exception, match="info has no action_mask at the start of an episode, but the training began"):
        agent.evaluate(1, env=lambda: Masked(reset=False, step=False))
