"""A bench at work: its cells as processes, some at a time; run again, it goes on and repeats nothing."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rl_training.experiment.bench.cell import CellRun
from rl_training.experiment.bench.plan import PLAN, BenchPlan, plan_differences, plan_yaml, read_plan
from rl_training.experiment.config.train_config import ConfigError
from rl_training.experiment.run_directory import RunLockedError, make_directory, write_atomically
from rl_training.experiment.signals import caught_signals

TICK = 0.1  # seconds between looks at the processes

Watch = Callable[[Sequence[CellRun]], None]


class Bench:
    """`bench.yaml`, and for each cell a folder with `seed_<s>/` runs, `log.txt` and, once it is done, `result.json`."""

    def __init__(self, plan: BenchPlan, directory: Path | str) -> None:
        self.plan, self.directory = plan, Path(directory)
        self.cells = [CellRun(cell, plan, self.directory) for cell in plan.cells()]
        self.signal: int | None = None  # that asked it to stop

    @property
    def status(self) -> str:
        """done, or else the worst that a cell came to."""
        states = {cell.state for cell in self.cells}
        return next((state for state in ("failed", "stopped", "waiting") if state in states), "done")

    def run(self, *, jobs: int = 1, watch: Watch = lambda cells: None) -> None:
        """Run every cell that is not done, `jobs` at a time; `watch` is called often, with all of them."""
        if jobs < 1:
            raise ValueError(f"jobs must be at least 1, got {jobs}")
        with self._locked() as lock, caught_signals() as caught:
            self._check()
            write_atomically(self.directory / PLAN, plan_yaml(self.plan))
            try:
                self._work(jobs, lock, caught, watch)
            finally:
                for cell in self.cells:
                    cell.end()
        self.signal = caught[0] if caught else None

    def _work(self, jobs: int, lock: int, caught: list[int], watch: Watch) -> None:
        asked = 0
        while True:
            for cell in self.cells:
                cell.poll(lock, stopping=bool(caught))
            if not caught:
                self._start_waiting(jobs, lock)
            watch(self.cells)
            if not self._running():
                return
            for number in caught[asked:]:
                asked += 1
                for cell in self._running():
                    cell.stop(number)
            time.sleep(TICK)

    def _running(self) -> list[CellRun]:
        return [cell for cell in self.cells if cell.process is not None]

    def _start_waiting(self, jobs: int, lock: int) -> None:
        waiting = [cell for cell in self.cells if cell.state == "waiting"]
        for cell in waiting[: jobs - len(self._running())]:
            cell.start(lock)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Held by the processes of the cells too, so that those of a bench that was killed are not disturbed."""
        make_directory(self.directory)
        with (self.directory / ".lock").open("w") as lock:
            patience = time.monotonic() + 2  # processes that were killed take a moment to go
            while not _taken(lock.fileno()):
                if time.monotonic() > patience:
                    raise RunLockedError(f"a bench is at work in {self.directory}; wait for it or choose --output")
                time.sleep(TICK)
            yield lock.fileno()

    def _check(self) -> None:
        """Refuse a directory of strangers' files, and one that holds another bench."""
        if not (self.directory / PLAN).exists():
            strangers = sorted(name for name in os.listdir(self.directory) if not name.startswith("."))
            if strangers:
                raise ConfigError(
                    f"{self.directory} holds no bench but has files in it ({strangers[0]}, …); choose another --output"
                )
            return
        changed = plan_differences(read_plan(self.directory), self.plan)
        if changed:
            named = "; ".join(f"{key}: {was!r} there, {now!r} here" for key, (was, now) in changed.items())
            raise ConfigError(
                f"{self.directory} holds another bench ({named}). "
                "Continue it with the plan it has, or choose another --output."
            )


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
