"""The command line in this process, and two small runs that the tests only read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rl_training.cli import app

CARTPOLE = ["train", "ppo", "CartPole-v1", "--steps", "256", "--set", "num_steps=64", "--set", "batch_size=64",
            "--set", "hidden_sizes=[8]", "--set", "eval_interval=128", "--set", "eval_episodes=2"]  # fmt: skip
PENDULUM = ["train", "bc", "Pendulum-v1", "--dataset", "{kind: random, rows: 200}", "--steps", "4",
            "--set", "hidden_sizes=[8]", "--set", "eval_interval=0"]  # fmt: skip


@pytest.fixture(autouse=True)
def _a_pipe_without_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who run the tests may have a narrow terminal."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="session")
def cli() -> Callable[..., Result]:
    """Calls a command; the result has exit_code, stdout and stderr."""
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def cartpole() -> list[str]:
    """A command that trains for a second."""
    return list(CARTPOLE)


@pytest.fixture(scope="session")
def finished(cli: Callable[..., Result], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The report of `train --json` for a PPO run on CartPole."""
    return _trained(cli, CARTPOLE, tmp_path_factory.mktemp("runs") / "cartpole")


@pytest.fixture(scope="session")
def pendulum(cli: Callable[..., Result], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The directory of a BC run on Pendulum, never evaluated."""
    return str(_trained(cli, PENDULUM, tmp_path_factory.mktemp("runs") / "pendulum")["run_dir"])


@pytest.fixture
def run(finished: dict[str, Any], tmp_path: Path) -> Path:
    """A copy of the finished run, to be changed."""
    return Path(shutil.copytree(finished["run_dir"], tmp_path / "run"))


def _trained(cli: Callable[..., Result], command: list[str], output: Path) -> dict[str, Any]:
    result = cli(*command, "--output", output, "--quiet", "--json")
    assert result.exit_code == 0, result.stderr
    report: dict[str, Any] = json.loads(result.stdout)
    return report


@pytest.fixture
def runs(tmp_path: Path, write_run: Callable[..., Path]) -> Path:
    """A folder with the files of two settings that differ in the learning rate, with three seeds each."""
    for seed in range(3):
        write_run(tmp_path / "runs" / "fast" / f"seed_{seed}", 5, 10 + seed, seed=seed, learning_rate=0.01)
        write_run(tmp_path / "runs" / "slow" / f"seed_{seed}", 5, 1 + seed, seed=seed)
    return tmp_path / "runs"


@pytest.fixture(scope="session")
def train_tiny_dreamer(cli: Callable[..., Result]) -> Callable[[Path, str], None]:
    """Trains a small Dreamer for twelve steps."""
    small = ("size=tiny", "window=4", "batch_size=2", "horizon=2", "learning_starts=8", "train_ratio=1")
    options = [part for each in (*small, "eval_interval=0", "checkpoint_interval=12") for part in ("--set", each)]

    def train(run: Path, env_id: str) -> None:
        trained = cli("train", "dreamer", env_id, "--steps", 12, *options, "--output", run, "--quiet")
        assert trained.exit_code == 0, trained.stderr

    return train
