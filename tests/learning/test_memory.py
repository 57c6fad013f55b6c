"""PPO with memory recalls what a feed-forward policy cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.run import run_training

pytestmark = [pytest.mark.learning, pytest.mark.timeout(400)]
DELAY = 8


class Recall(gym.Env[Any, Any]):
    """Shows a sign at the first step and asks for it `DELAY` steps later; the right answer has reward 1."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time, self.sign = 0, int(self.np_random.integers(2))
        return self._observed(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        is_asked = self.time == DELAY
        self.time += 1
        return self._observed(), float(is_asked and int(action) == self.sign), is_asked, False, {}

    def _observed(self) -> Any:
        return np.array([(2 * self.sign - 1) * (self.time == 0), self.time == DELAY], np.float32)


gym.register("Recall-v0", lambda **_: Recall())


def final_share(network: dict[str, Any] | None, folder: Path) -> float:
    """Share of right answers in evaluation."""
    options = {"num_steps": 36, "batch_size": 288, "epochs": 4, "learning_rate": 3e-3, "entropy_weight": 0.01,
               "hidden_sizes": [16], "network": network}  # fmt: skip
    run = {"algo": "ppo", "env_id": "Recall-v0", "num_envs": 32, "total_timesteps": 25_000, "eval_episodes": 100,
           "eval_interval": 25_000, "output_dir": str(folder / "run")}  # fmt: skip
    found = run_training(parse_config({**run, "algo_kwargs": options})).evaluation
    assert found is not None
    return float(found["return_mean"])


@pytest.mark.parametrize("memory", ["lstm", pytest.param("gru", marks=pytest.mark.slow)])
def test_a_recurrent_policy_recalls_the_first_observation(memory, tmp_path):
    assert final_share({"memory": memory, "memory_size": 16}, tmp_path) > 0.95


def test_a_feed_forward_policy_can_only_guess(tmp_path):
    assert final_share(None, tmp_path) < 0.7
