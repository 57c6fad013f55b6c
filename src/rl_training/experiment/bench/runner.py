"""Runs the cells of a bench as processes. Running a bench again continues it and repeats no finished cell."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rl_training.experiment.bench.cell import CellRun
from rl_training.experiment.bench.plan import PLAN, BenchPlan, plan_differences, plan_yaml, read_plan
from rl_training.experiment.config.train_config import ConfigError
from rl_training.experiment.processes.runner import POLL_SECONDS, run_jobs
from rl_training.experiment.run_directory import RunLockedError, make_directory
from rl_training.runtime.files import write_atomically

LOCK_SECONDS = 2  # processes that were killed keep the lock for a moment

Watch = Callable[[Sequence[CellRun]], None]


class Bench:
    """A directory with `bench.yaml` and a folder for each cell: `seed_<s>/` runs, `log.txt`, finally `result.json`."""

    def __init__(self, plan: BenchPlan, directory: Path | str) -> None:
        self.plan, self.directory = plan, Path(directory)
        self.cells = [CellRun(cell, plan, self.directory) for cell in plan.cells()]
        self.signal: int | None = None  # the signal that stopped the bench

    @property
    def status(self) -> str:
        """failed, stopped or waiting if any cell is, in this order; otherwise done."""
        states = {cell.state for cell in self.cells}
        return next((state for state in ("failed", "stopped", "waiting") if state in states), "done")

    def run(self, *, jobs: int = 1, watch: Watch = lambda cells: None) -> None:
        """Runs every cell that is not done, `jobs` at a time; calls `watch` with all cells several times a second."""
        if jobs < 1:
            raise ValueError(f"jobs must be at least 1, got {jobs}")
        with self._locked() as lock:
            self._check()
            write_atomically(self.directory / PLAN, plan_yaml(self.plan))
            for cell in self.cells:
                cell.keep_open = (lock,)
            caught = run_jobs(self.cells, limit=jobs, watch=lambda: watch(self.cells))
        self.signal = caught[0] if caught else None

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Locks the directory. The processes of cells keep the lock too, until they end after a kill of the bench."""
        make_directory(self.directory)
        with (self.directory / ".lock").open("w") as lock:
            deadline = time.monotonic() + LOCK_SECONDS
            while not _try_lock(lock.fileno()):
                if time.monotonic() > deadline:
                    raise RunLockedError(
                        f"another bench is running in {self.directory}; wait for it or choose another --output"
                    )
                time.sleep(POLL_SECONDS)
            yield lock.fileno()

    def _check(self) -> None:
        """Raises if the directory holds other files or another bench."""
        if not (self.directory / PLAN).exists():
            others = sorted(name for name in os.listdir(self.directory) if not name.startswith("."))
            if others:
                raise ConfigError(
                    f"{self.directory} is not a bench directory and is not empty ({others[0]}, …); "
                    "choose another --output"
                )
            return
        changed = plan_differences(read_plan(self.directory), self.plan)
        if changed:
            named = "; ".join(f"{key}: {was!r} there, {now!r} here" for key, (was, now) in changed.items())
            raise ConfigError(
                f"{self.directory} holds another bench ({named}). "
                "Continue it with its own plan, or choose another --output."
            )


def _try_lock(lock: int) -> bool:
    import fcntl

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
