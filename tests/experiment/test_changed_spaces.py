"""Other action bounds and other first actions than those of the training are refused."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rl_training import BC, PPO, resume_training
from rl_training.experiment.config.messages import ConfigError
from rl_training.runtime.callbacks.training import StopAtStep

TINY: dict[str, Any] = {"total_timesteps": 32, "num_steps": 16, "batch_size": 16, "epochs": 1, "hidden_sizes": [8],
                        "eval_interval": 0}  # fmt: skip


class Acts(gym.Env[Any, Any]):
    observation_space = spaces.Box(-1, 1, (1,))

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.action_space = space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.zeros(1, np.float32), 0.0, False, self.steps == 5, {}


CHANGES = [
    (spaces.Box(-1, 2, (2,)), spaces.Box(-1, 3, (2,)), r"upper action bounds .*3\.0, 3\.0.*2\.0, 2\.0"),
    (spaces.Box(-1, 2, (2,)), spaces.Box(-2, 2, (2,)), "lower action bounds"),
    (spaces.Discrete(3), spaces.Discrete(3, start=1), "first action 1.* 0"),
    (spaces.MultiDiscrete([2, 3]), spaces.MultiDiscrete([3, 2]), "numbers of actions"),
    (spaces.MultiDiscrete([2, 3]), spaces.MultiDiscrete([2, 3], start=[1, 0]), "first actions"),
]


@pytest.mark.parametrize(("space", "changed", "message"), CHANGES)
def test_another_action_space_is_refused_for_a_trained_agent(space, changed, message, tmp_path):
    PPO(lambda: Acts(space), output_dir=str(tmp_path / "run"), **TINY).learn()
    with pytest.raises(ValueError, match=f"has the {message}"):
        PPO.load(tmp_path / "run", env=lambda: Acts(changed))
    assert PPO.load(tmp_path / "run", env=lambda: Acts(space)).evaluate(1)["lengths"] == [5]


def test_a_run_is_not_continued_with_other_action_bounds(tmp_path):
    held = [spaces.Box(-1, 2, (2,))]
    agent = PPO(lambda: Acts(held[0]), output_dir=str(tmp_path / "run"), **TINY)
    agent.learn(callbacks=StopAtStep(16))
    held[0] = spaces.Box(-1, 3, (2,))
    with pytest.raises(
        ConfigError, match=r"the upper action bounds were \[2.0, 2.0\] when .* and are \[3.0, 3.0\] now"
    ):
        agent.learn()
    with pytest.raises(ValueError, match="upper action bounds"):
        resume_training(tmp_path / "run", env=lambda: Acts(held[0]))


def test_bounds_in_place_of_infinite_ones_are_those_of_the_run(tmp_path):
    infinite = spaces.Box(-np.inf, np.inf, (2,))
    PPO(lambda: Acts(infinite), action_range=(-5, 5), output_dir=str(tmp_path / "run"), **TINY).learn()
    assert PPO.load(tmp_path / "run", env=lambda: Acts(infinite)).agent.spec.action_high == (5.0, 5.0)


def test_bounds_that_another_machine_rounds_differently_are_the_same(tmp_path):
    PPO(lambda: Acts(spaces.Box(-1, 0.7, (1,))), output_dir=str(tmp_path / "run"), **TINY).learn()
    near = spaces.Box(-1, float(np.nextafter(np.float32(0.7), np.float32(1))), (1,))
    PPO.load(tmp_path / "run", env=lambda: Acts(near))


def test_bounds_guessed_from_data_are_not_compared(tmp_path):
    rng = np.random.default_rng(0)
    columns = {"obs": rng.normal(size=(64, 3)), "actions": rng.uniform(-1.9, 1.9, (64, 1)), "rewards": np.zeros(64)}
    columns |= {"next_obs": columns["obs"], "dones": np.arange(64) % 8 == 7}
    arrays: dict[str, Any] = {name: np.asarray(each, np.float32) for name, each in columns.items()}
    np.savez(tmp_path / "data.npz", **arrays)
    options: dict[str, Any] = {"total_timesteps": 4, "hidden_sizes": [8], "output_dir": str(tmp_path / "run")}
    trained = BC(dataset=str(tmp_path / "data.npz"), **options).learn()
    assert trained.agent.spec.action_high[0] < 2
    assert len(trained.evaluate(1, env="Pendulum-v1")["returns"]) == 1
