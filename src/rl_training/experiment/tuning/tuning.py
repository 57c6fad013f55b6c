"""Runs a study: its trials, then the best config on other seeds. The same command continues it and repeats nothing."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

from rl_training.experiment.config.differences import named_differences
from rl_training.experiment.config.messages import ConfigError
from rl_training.experiment.config.yaml_text import write_yaml
from rl_training.experiment.executors.base import Executor
from rl_training.experiment.executors.job_log import WarnOnce
from rl_training.experiment.processes.runner import run_jobs
from rl_training.experiment.run_directory import LOCK_SECONDS, locked_file, make_directory
from rl_training.experiment.tuning.failures import Failures
from rl_training.experiment.tuning.final import Final, WatchBench
from rl_training.experiment.tuning.plan import PLAN, FinalPlan, TunePlan, plan_differences, plan_yaml, read_plan
from rl_training.experiment.tuning.space import checked
from rl_training.experiment.tuning.study import Study
from rl_training.experiment.tuning.trial import BASE, TrialRun
from rl_training.files import write_atomically

Watch = Callable[[Sequence[TrialRun]], None]
WatchTrials = Callable[[Sequence[TrialRun]], AbstractContextManager[Watch]]  # shows the trials while they run


class Tuning:
    """A directory with `tune.yaml`, `base.yaml`, `journal.jsonl`, `trials/<number>/`, `final/` and `best.yaml`."""

    def __init__(self, plan: TunePlan, directory: Path, count: int, command: str) -> None:
        self.plan, self.directory, self.count, self.command = plan, directory, count, command
        self.trials: list[TrialRun] = []
        self.final: Final | None = None
        self.best_config: Path | None = None
        self.importance: dict[str, float] = {}
        self.signal: int | None = None  # the signal that stopped the study
        self.warn = WarnOnce()

    @property
    def status(self) -> str:
        """stopped if a trial was, failed if no trial or no final run has a score, otherwise done."""
        if self.signal is not None or any(trial.state == "stopped" for trial in self.trials):
            return "stopped"
        return "failed" if self.final is None or self.final.best is None else "done"

    def run(
        self, open_executor: Callable[[], Executor], final: FinalPlan, watch: WatchTrials, watch_final: WatchBench
    ) -> None:
        """Runs the trials that are not done, at most as many at a time as the executor takes; then scores the best."""
        with self._opened(open_executor) as (executor, lock):
            with closing(executor):
                self._write()
                study = self._run_trials(executor, (lock,), watch)
                best = study.best()
                if self.status != "stopped" and best is not None:
                    self._score(Final(self.directory, self.plan, final, best, self.warn), executor, watch_final)
            self.importance = study.importance()

    @contextmanager
    def _opened(self, open_executor: Callable[[], Executor]) -> Iterator[tuple[Executor, int]]:
        """Locks the directory and opens the executor. After an error, no new directory is left."""
        new = [folder for folder in (self.directory, *self.directory.parents) if not folder.exists()]
        make_directory(self.directory)
        busy = f"another study is running in {self.directory}; wait for it or choose another --output"
        with locked_file(self.directory / ".lock", busy, seconds=LOCK_SECONDS) as lock:
            try:
                self._check()
                executor = open_executor()
            except Exception:
                if new:
                    (self.directory / ".lock").unlink()
                for folder in new:
                    with suppress(OSError):  # another process has written into it
                        folder.rmdir()
                raise
            yield executor, lock

    def _score(self, final: Final, executor: Executor, watch: WatchBench) -> None:
        self.final = final
        final.run(executor, watch)
        self.signal = final.signal
        if final.best is not None and self.signal is None:
            self.best_config = final.write(len(self.trials), self.command)

    def _check(self) -> None:
        """Takes over the stored plan, or raises ConfigError if the directory holds other files or another study."""
        if (self.directory / PLAN).exists():
            self._continue(read_plan(self.directory))
            return
        others = sorted(name for name in os.listdir(self.directory) if not name.startswith("."))
        if others and others != [BASE]:  # a kill may have come between the two files
            raise ConfigError(
                f"{self.directory} is not the directory of a study and is not empty ({others[0]}, …); "
                "choose another --output"
            )

    def _write(self) -> None:
        if not (self.directory / PLAN).exists():
            write_atomically(self.directory / BASE, write_yaml(self.plan.config))
            write_atomically(self.directory / PLAN, f"# {self.command}\n{plan_yaml(self.plan)}")

    def _continue(self, stored: TunePlan) -> None:
        """Takes over the stored plan, whose order of keys the suggestions depend on."""
        changed = plan_differences(stored, self.plan)
        if changed:
            raise ConfigError(
                f"{self.directory} holds another study ({named_differences(changed)}). "
                "Continue it with its own options, or choose another --output."
            )
        self.plan = stored

    def _print_warnings(self) -> None:
        for trial in self.trials:
            self.warn(f"trial {trial.number}", trial.warnings)
            trial.warnings.clear()

    def _run_trials(self, executor: Executor, locks: tuple[int, ...], watch: WatchTrials) -> Study:
        space, config = checked(self.plan.space(), self.plan.config, ()), self.plan.train_config()
        study = Study(self.directory, space, sampler=self.plan.sampler, seed=self.plan.sampler_seed)
        stored = study.trials()
        if len(stored) > self.count:
            raise ConfigError(f"{self.directory} has {len(stored)} trials already; --trials must be at least that")
        failures = Failures(study, self.count)
        self.trials = [
            TrialRun(number, self.plan, config, self.directory, study, failures, executor, locks)
            for number in range(self.count)
        ]
        for trial, earlier in zip(self.trials, stored, strict=False):
            trial.load(earlier)
        with watch(self.trials) as show:

            def show_all() -> None:
                self._print_warnings()
                show(self.trials)

            caught = run_jobs(self.trials, limit=executor.parallel, watch=show_all)
        self.signal = caught[0] if caught else None
        if failures.hopeless and not caught:
            raise ConfigError(f"no trial can be trained: {failures.error}")
        if not caught:
            failures.record()
        return study
