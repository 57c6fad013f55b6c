"""Fixtures of all tests: one torch thread, repeatable examples, forked processes, and the folder of real data."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
import typer
import typer.testing
from hypothesis import settings

from rl_training.cli import train
from rl_training.envs.pools import worker_process
from rl_training.envs.pools.arithmetic import usual_arithmetic
from rl_training.experiment import datasets
from rl_training.experiment.executors import local
from rl_training.experiment.ope import probabilities
from rl_training.experiment.seeds import processes
from rl_training.runtime.callbacks.trackers.guarded import OPENERS
from rl_training.runtime.recipes import roll_dataset

FSYNC = os.fsync

gc.disable()  # until tests are collected; see `pytest_collection_finish`
torch.set_num_threads(1)
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs long tests first, so that short ones are left to share out among the workers at the end."""
    items.sort(key=lambda item: "learning" not in item.keywords)


def pytest_collection_finish() -> None:
    """Keeps modules and collected tests out of garbage collection, which takes a tenth of the time otherwise."""
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()


@pytest.fixture(autouse=True)
def _same_kernels() -> Iterator[None]:
    """Keeps rounding independent of the tests that ran before.

    On CPUs without bfloat16 products, PyTorch turns oneDNN off for the rest of the process after the first one fails.
    """
    yield
    torch.backends.mkldnn.set_flags(True)


@pytest.fixture(autouse=True)
def _denormal_numbers() -> None:
    """Training flushes denormal numbers to zero in the rest of the process; hypothesis needs them."""
    usual_arithmetic.flush = None
    torch.set_flush_denormal(False)


class Levers(gym.Env[Any, Any]):
    """Two levers of three and two places: each pays a half a step where it stands as one of the two signs says."""

    observation_space = gym.spaces.Box(0, 2, (2,))
    action_space = gym.spaces.MultiDiscrete([3, 2], start=[5, 0])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._signs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise ValueError(f"these levers cannot be put to {action!r}")
        right = (action - self.action_space.start) == self.signs
        return self._signs(), float(right.mean()), False, False, {}

    def _signs(self) -> Any:
        self.signs = self.np_random.integers(0, [3, 2])
        return self.signs.astype(np.float32)


gym.register("Levers-v0", lambda **_: Levers(), max_episode_steps=20)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder `shared/data` beside the repository; tests that want real data skip without it."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no folder shared/data beside the repository")
    return folder


@pytest.fixture(scope="session", autouse=True)
def _without_tensorboard() -> Iterator[Any]:
    """Removes the default tracker, which costs a small run a sixth of its time, also from fixtures of modules."""
    with pytest.MonkeyPatch.context() as patch:
        opener = OPENERS["tensorboard"]
        patch.delitem(OPENERS, "tensorboard")
        yield opener


@pytest.fixture
def tensorboard(_without_tensorboard: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps the default tracker."""
    monkeypatch.setitem(OPENERS, "tensorboard", _without_tensorboard)


@pytest.fixture(scope="session", autouse=True)
def _without_curves() -> Iterator[Any]:
    """Draws no picture after `train`, which would take longer than the training."""
    with pytest.MonkeyPatch.context() as patch:
        drawn = train.draw_curve
        patch.setattr(train, "draw_curve", lambda run: None)
        yield drawn


@pytest.fixture
def curves(_without_curves: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws the picture after `train`."""
    monkeypatch.setattr(train, "draw_curve", _without_curves)


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts the datasets that configs generate in this process to 1,000 transitions, for runs of a few steps."""

    def cut(*arguments: Any, rows: int, **options: Any) -> Any:
        return roll_dataset(*arguments, rows=min(rows, 1_000), **options)

    monkeypatch.setattr(datasets, "roll_dataset", cut)


@pytest.fixture
def short_cloning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clones behaviour policies for importance weights with 20 updates instead of 2,000."""
    monkeypatch.setattr(probabilities, "CLONING_UPDATES", 20)


@pytest.fixture
def short_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends episodes after 50 steps, for runs of a few steps, whose evaluations take longer than their training."""
    for spec in gym.registry.values():
        if (spec.max_episode_steps or 0) > 50:
            monkeypatch.setattr(spec, "max_episode_steps", 50)


@pytest.fixture(scope="session", autouse=True)
def _config_folder_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps the modules that tests train with out of the user's own list of trusted modules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _without_fsync() -> Iterator[None]:
    """Waits for no disk: a training of a tenth of a second calls fsync fifty times. Bad descriptors still raise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture
def fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps `os.fsync`."""
    monkeypatch.setattr(os, "fsync", FSYNC)


@pytest.fixture(scope="session", autouse=True)
def _seeds_without_a_traceback() -> Iterator[None]:
    """Without a GPU, `torch.manual_seed` formats the whole stack three times, which takes a millisecond in a test."""
    without = SimpleNamespace(format_stack=list)
    with pytest.MonkeyPatch.context() as patch:
        for device in (torch.cuda, torch.xpu, torch.mtia):
            patch.setattr(device, "traceback", without)
        yield


@pytest.fixture(scope="session", autouse=True)
def _commands_are_built_once() -> Iterator[None]:
    """Typer builds all commands at every call, which takes longer than most of them do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", cache(typer.main.get_command))
        yield


def _forked_processes() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parent)
        return import_module("forked_processes")


@contextmanager
def _forking() -> Iterator[None]:
    if sys.platform != "linux":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        forked = _forked_processes().ForkedProcess
        patch.setattr(local, "subprocess", SimpleNamespace(Popen=forked, DEVNULL=subprocess.DEVNULL))
        fork = get_context("fork")
        patch.setattr(processes, "multiprocessing", SimpleNamespace(get_context=lambda method: fork))
        yield


@pytest.fixture(scope="session")
def forking() -> Callable[[], AbstractContextManager[None]]:
    """Starts the processes of benches and seeds as forks of this one, which saves the import of torch in each."""
    return _forking


@pytest.fixture
def forked_jobs() -> Iterator[None]:
    """`forking` for a whole test."""
    with _forking():
        yield


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts workers of environments as forks of this process, which saves the import of Gymnasium in each."""
    if sys.platform == "linux":
        fork = get_context("fork")
        monkeypatch.setattr(worker_process, "multiprocessing", SimpleNamespace(get_context=lambda method: fork))


def _start_command(*words: str, **options: Any) -> subprocess.Popen[str]:
    if sys.platform == "linux":
        found: subprocess.Popen[str] = _forked_processes().start_command(*words, **options)
        return found
    return subprocess.Popen([sys.executable, "-m", "rl_training.cli", *words], text=True, **options)


@pytest.fixture(scope="session")
def start_command() -> Callable[..., subprocess.Popen[str]]:
    """Starts `rl-training` as a fork of this process; the arguments after its own are those of `subprocess.Popen`."""
    return _start_command


def _write_run(path: Path, *returns: float, algo: str = "sac", env: str | None = "X-v1", seed: int = 0,
              status: str | None = "finished", top: dict[str, Any] | None = None, **options: Any) -> Path:  # fmt: skip
    path.mkdir(parents=True)
    config = {"algo": algo, "env_id": env, "seed": seed, "total_timesteps": 100, "device": "auto", **(top or {}),
              "output_dir": str(path), "algo_kwargs": {"learning_rate": 1e-3, "batch_size": 64, **options}}  # fmt: skip
    (path / "config.yaml").write_text(json.dumps(config))
    (path / "run.json").write_text(json.dumps({"git": "abc"}))
    steps = [100 * (number + 1) // max(1, len(returns)) for number in range(len(returns))]
    rows: list[dict[str, Any]] = [{"step": 1, "episode_return": 1.5}]
    rows += [{"step": step, "evaluation": {"step": step, "return_mean": value}}
             for step, value in zip(steps, returns, strict=True)]  # fmt: skip
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 9')  # cut short
    if status is not None:
        (path / "result.json").write_text(json.dumps({"status": status, "steps": 100, "updates": 9, "seconds": 2.0}))
    return path


@pytest.fixture(scope="session")
def write_run() -> Callable[..., Path]:
    """Writes the files of a run directory with these evaluations; `options` are those of the algorithm."""
    return _write_run
