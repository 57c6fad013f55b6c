"""Runs the cells of a bench by an executor. Running a bench again continues it and repeats no finished cell."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from rl_training.experiment.agent import CHECKPOINTS
from rl_training.experiment.bench.cell import CellRun
from rl_training.experiment.bench.held_out import require_test_data
from rl_training.experiment.bench.plan import PLAN, SCORING, BenchPlan, plan_differences, plan_yaml, read_plan
from rl_training.experiment.config.differences import (
    EFFECTIVE,
    MAY_CHANGE,
    Differences,
    config_differences,
    named_differences,
)
from rl_training.experiment.config.messages import ConfigError, similar_key
from rl_training.experiment.executors.base import Executor
from rl_training.experiment.executors.job_log import WarnOnce
from rl_training.experiment.executors.local import LocalExecutor
from rl_training.experiment.processes.runner import run_jobs
from rl_training.experiment.run_directory import LOCK_SECONDS, locked_file, make_directory
from rl_training.files import write_atomically
from rl_training.messages import print_warning

Watch = Callable[[Sequence[CellRun]], None]
PLAN_SECONDS = 30
FREE = {"seed", *MAY_CHANGE} - {*EFFECTIVE}  # keys of a config that may differ from those of the trained runs


class Bench:
    """A directory with `bench.yaml` and a folder for each cell: `seed_<s>/` runs, `log.txt`, finally `result.json`."""

    def __init__(self, plan: BenchPlan, directory: Path | str) -> None:
        self.plan, self.directory = plan, Path(directory)
        self.cells = [CellRun(cell, plan, self.directory) for cell in plan.cells()]
        self.signal: int | None = None  # the signal that stopped the bench
        self.warn = WarnOnce()

    @property
    def status(self) -> str:
        """failed, stopped or waiting if any cell is, in this order; otherwise done."""
        states = {cell.state for cell in self.cells}
        return next((state for state in ("failed", "stopped", "waiting") if state in states), "done")

    def run(self, *, jobs: int = 1, executor: Executor | None = None, watch: Watch = lambda cells: None) -> None:
        """Runs every cell that is not done, at most `jobs` at a time or as many as the executor runs.

        Calls `watch` with all cells several times a second.
        """
        if jobs < 1:
            raise ValueError(f"jobs must be at least 1, got {jobs}")
        make_directory(self.directory)
        busy = f"another bench is running in {self.directory}; wait for it or choose another --output"
        with locked_file(self.directory / ".lock", busy, seconds=LOCK_SECONDS) as lock:
            self._begin()
            self._run(self.cells, executor or LocalExecutor(jobs), (lock,), watch)

    def run_cell(self, name: str, *, executor: Executor | None = None, watch: Watch = lambda cells: None) -> None:
        """Runs one cell on this machine, beside others; `cells` has only this one from then on."""
        named = {cell.cell.name: cell for cell in self.cells}
        if name not in named:
            near = similar_key(name, [*named]) or f"; its cells are {', '.join(named)}"
            raise ConfigError(f"{self.directory} has no cell {name!r}{near}")
        make_directory(self.directory)
        self._begin()
        self.cells = [named[name]]
        self._run(self.cells, executor or LocalExecutor(1), (), watch)

    def _run(self, cells: Sequence[CellRun], executor: Executor, locks: tuple[int, ...], watch: Watch) -> None:
        waiting = {cell.cell.name: cell.config for cell in cells if cell.state != "done"}
        if self.plan.test is not None and not executor.remote:
            require_test_data(self.plan.test, waiting)  # before hours of training
        for cell in cells:
            cell.executor, cell.keep_open = executor, locks
            cell.warn_of_changed_sources()

        def show() -> None:
            for cell in cells:
                self.warn(cell.cell.name, cell.warnings)
                cell.warnings.clear()
            watch(cells)

        caught = run_jobs(cells, limit=executor.limit, watch=show)
        self.signal = caught[0] if caught else None

    def _begin(self) -> None:
        """Writes the plan; commands for several cells may do so at the same time."""
        busy = f"another process is writing the plan in {self.directory}; repeat the command"
        with locked_file(self.directory / ".plan.lock", busy, seconds=PLAN_SECONDS):
            changed = self._check()
            if changed or not (self.directory / PLAN).exists():
                write_atomically(self.directory / PLAN, plan_yaml(self.plan))

    def _check(self) -> Differences:
        """Returns the changed options of the scores; raises if the directory holds other files or another bench."""
        if not (self.directory / PLAN).exists():
            others = sorted(name for name in os.listdir(self.directory) if not name.startswith("."))
            if others:
                raise ConfigError(
                    f"{self.directory} is not a bench directory and is not empty ({others[0]}, …); "
                    "choose another --output"
                )
            return {}
        changed = plan_differences(read_plan(self.directory), self.plan)
        named = named_differences(changed)
        if not changed.keys() <= {*SCORING} and any(self.directory.glob("*/seed_*")):
            raise ConfigError(
                f"{self.directory} holds another bench ({named}). "
                "Continue it with its own plan, or choose another --output."
            )
        for cell in self.cells:
            _require_same_config(cell)
        trained = [cell for cell in self.cells if changed and cell.is_trained and cell.state == "waiting"]
        for cell in trained:
            if not all((run / CHECKPOINTS).is_dir() for run in cell.runs()):
                raise ConfigError(
                    f"{cell.folder} cannot be scored again ({named}), because its runs are deleted; choose another "
                    "--output"
                )
        if trained:
            print_warning(f"scores are made again ({named}); trained runs are kept")
        return changed


def _require_same_config(cell: CellRun) -> None:
    """Raises ConfigError if the runs of a cell have another config: the plan only names its file, which may change."""
    stored = cell.stored_config()
    found = {} if stored is None else config_differences(stored, cell.config)
    changed = {key: values for key, values in found.items() if key.partition(".")[0] not in FREE}
    if not changed:
        return
    file = cell.cell.learner
    edited = f"Undo the edit of {file}, or choose" if Path(file).suffix in (".yaml", ".yml") else "Choose"
    raise ConfigError(
        f"{cell.folder} was trained with another config ({named_differences(changed)}). {edited} another --output."
    )
