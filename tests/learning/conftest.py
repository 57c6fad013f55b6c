"""A learning test trains a packaged setting, shortened, and asks what it scores in the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rl_training.data.writers import save_npz
from rl_training.experiment.agent import load_agent
from rl_training.experiment.config.train_config import apply_overrides, load_config, parse_config
from rl_training.experiment.run import run_training
from rl_training.runtime.recipes import roll_dataset


@pytest.fixture(scope="session")
def pendulum_rows(tmp_path_factory) -> str:
    """The file of what every packaged Pendulum setting rolls for itself: 50,000 steps of a random policy."""
    path = tmp_path_factory.mktemp("data") / "pendulum.npz"
    save_npz(roll_dataset("Pendulum-v1", rows=50_000), path)
    return str(path)


@pytest.fixture(scope="session")
def cartpole_rows(tmp_path_factory) -> str:
    """20,000 steps of a random policy on CartPole."""
    path = tmp_path_factory.mktemp("data") / "cartpole.npz"
    save_npz(roll_dataset("CartPole-v1", rows=20_000), path)
    return str(path)


@pytest.fixture
def final_return(tmp_path) -> Callable[..., float]:
    """The mean return of the last checkpoint over 20 episodes it was not chosen by."""

    def train(name: str, *overrides: str, **changes: Any) -> float:
        values = {**load_config(name), "eval_interval": 0, "output_dir": str(tmp_path / "run"), **changes}
        result = run_training(parse_config(apply_overrides(values, overrides)), fresh=True)
        assert result.status == "finished", result.stop_reason
        return float(load_agent(result.run_dir).evaluate(20, seed=99)["return_mean"])

    return train


@pytest.fixture
def reaches(final_return) -> Callable[..., bool]:
    """Returns whether one of three seeds scores above a threshold; so short a training can fail with one seed."""

    def learns(threshold: float, name: str, *overrides: str, seeds: Sequence[int] = range(3), **changes: Any) -> bool:
        return any(final_return(name, *overrides, seed=seed, **changes) > threshold for seed in seeds)

    return learns
