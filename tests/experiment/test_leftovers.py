"""A run that has ended leaves no thread, open file or process behind, however it ended."""

import gc
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.run import run_population, run_training
from rl_training.runtime.callbacks.training import StopAtStep
from rl_training.runtime.engine import Callback

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="counts the files in /proc/self/fd"),
    pytest.mark.usefixtures("tensorboard"),
]


class Fails(Callback):
    def on_step_end(self, state: Any) -> None:
        if state.global_step >= 20:
            raise KeyError("on purpose")


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    """Counts files and threads without the garbage collector, which would close some of them."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def open_now() -> dict[str, int]:
    processes = multiprocessing.active_children()  # first: closes the files of ended processes
    return {
        "threads": threading.active_count(),
        "files": len(os.listdir("/proc/self/fd")),
        "processes": len(processes),
    }


def settings(path: Path, **changes: Any) -> Any:
    options = {"hidden_sizes": [4], "learning_starts": 10, "batch_size": 4, "buffer_size": 20}
    return parse_config({
        "algo": "dqn", "env_id": "CartPole-v1", "total_timesteps": 40, "log_interval": 10, "eval_interval": 20,
        "eval_episodes": 1, "output_dir": str(path), "algo_kwargs": options, **changes,
    })  # fmt: skip


def finished(path: Path) -> None:
    assert run_training(settings(path)).status == "finished"


def stopped(path: Path) -> None:
    assert run_training(settings(path), callbacks=StopAtStep(20)).status == "stopped"


def failed(path: Path) -> None:
    with pytest.raises(RuntimeError, match="callback Fails failed"):
        run_training(settings(path), callbacks=Fails())


def with_workers(path: Path) -> None:
    run_training(settings(path, num_envs=2, env_workers=1))


def with_progress(path: Path) -> None:
    run_training(settings(path), quiet=False)


def as_population(path: Path) -> None:
    run_population([settings(path / str(seed), seed=seed) for seed in (0, 1)])


@pytest.mark.parametrize("run", [finished, stopped, failed, with_workers, with_progress, as_population])
def test_a_run_leaves_nothing_open(tmp_path: Path, run: Callable[[Path], None]) -> None:
    run(tmp_path / "first")  # opens what a process opens once, such as the tracker of shared resources
    before = open_now()
    for number in range(2):
        run(tmp_path / str(number))
    assert list(tmp_path.glob("**/tensorboard/events*"))
    assert open_now() == before
