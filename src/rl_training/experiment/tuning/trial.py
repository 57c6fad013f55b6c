"""One trial of a study: a `train` command with the values to try, whose evaluations are read while it runs."""

from __future__ import annotations

import math
import signal
import time
from pathlib import Path
from typing import Any

from rl_training.experiment.assembly import interval
from rl_training.experiment.config.train_config import TrainConfig
from rl_training.experiment.executors.base import LOG, Command, Executor, last_error
from rl_training.experiment.executors.job_log import JobLog
from rl_training.experiment.processes.runner import SAVE_SECONDS, Job
from rl_training.experiment.tuning.evaluations import Evaluations
from rl_training.experiment.tuning.failures import Failures
from rl_training.experiment.tuning.plan import EVALUATIONS, TunePlan
from rl_training.experiment.tuning.space import assignments
from rl_training.experiment.tuning.study import Study, Trial
from rl_training.experiment.user_errors import USER_ERROR_CODE

BASE = "base.yaml"  # the config of all trials, before their own values


class TrialRun(Job):
    """`state` is waiting, queued, running, done, pruned, failed or stopped; `value` is the score so far."""

    def __init__(
        self, number: int, plan: TunePlan, config: TrainConfig, directory: Path, study: Study, failures: Failures,
        executor: Executor, keep_open: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        self.number, self.plan, self.directory = number, plan, directory
        self.study, self.failures = study, failures
        self.executor, self.keep_open = executor, keep_open
        self.folder = directory / "trials" / f"{number:04}"
        self.state = "waiting"
        self.error: str | None = None
        self.params: dict[str, Any] = {}
        self.value: float | None = None
        self.step = -1  # of the last evaluation that was reported
        self.warnings: list[str] = []  # not printed yet
        self._log = JobLog(self.folder / LOG)
        self.steps, self._interval = config.duration, interval(config.eval_interval, config.duration, EVALUATIONS)
        self._evaluations = Evaluations(self.runs())
        self._judged = -1  # step up to which it is decided that the trial goes on
        self._deadline = math.inf  # when a pruned process is killed

    @property
    def waiting(self) -> bool:
        return self.state == "waiting"

    @property
    def stops_others(self) -> bool:
        return self.failures.hopeless

    def load(self, stored: Trial) -> None:
        """Takes over a trial of the journal; one that was running waits to be continued."""
        self.params, self.value, self.error = stored.params, stored.value, stored.error
        self.step = max(stored.evaluations, default=-1)
        self._judged = self.step - 1  # a kill may have come between the report and the decision
        self.state = "waiting" if stored.state == "running" else stored.state

    def runs(self) -> list[Path]:
        return [self.folder / f"seed_{seed}" for seed in self.plan.seeds]

    def start(self) -> None:
        """Starts the trial, or continues it from its checkpoints if it was stopped."""
        if not self.params:
            self.params = self.study.create(self.number).params
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.executor.remote:  # a job that has outlived its driver may be writing it
            (self.folder / LOG).unlink(missing_ok=True)
        self._log = JobLog(self.folder / LOG, skip=True)
        arguments = ("rl_training.cli", *self.command(), "--json", "--quiet")
        self.process = self.executor.submit(Command(f"trial {self.number}", arguments, self.folder, self.keep_open))
        self.state = "running" if self.process.started else "queued"

    def command(self) -> list[str]:
        """The arguments after `rl-training`."""
        changes = [word for each in assignments(self.params) for word in ("--set", each)]
        seeds = ",".join(map(str, self.plan.seeds))
        base = str(self.directory / BASE)
        return ["train", base, *changes, "--seeds", seeds, "--output", str(self.folder)]

    def poll(self, *, stopping: bool) -> None:
        assert self.process is not None
        code = self.process.poll()  # before reading, so that no evaluation is left after the end
        self.warnings += self._log.warnings()
        if self.state != "pruned":
            self._follow()
        if code is None:
            if self.state in ("queued", "running"):
                self.state = "running" if self.process.started else "queued"
            elif time.monotonic() > self._deadline:
                self.process.kill()
            return
        ended, self.process = self.process, None
        if self.state == "pruned":
            return
        if code == 0:
            self._finish()
        elif stopping or self.failures.hopeless or ended.stopped:
            self.state, self.error = "stopped", ended.error
        else:
            self._fail(ended.error or last_error(self.folder / LOG, code), user_error=code == USER_ERROR_CODE)

    def _follow(self) -> None:
        """Reports new evaluations; prunes the trial at the first one that is too low.

        The decision depends on the evaluations alone, not on how far the training has come when they are read.
        """
        for step, value in self._evaluations.shared(self._interval).items():
            if step > self.step:
                self.study.report(self.number, step, value)
                self.value, self.step = value, step
            if step > self._judged:
                self._judged = step
                if self._is_too_low(step):
                    self._prune()
                    return

    def _is_too_low(self, step: int) -> bool:
        is_last = step >= self.steps // self._interval * self._interval
        return self.plan.prune and not is_last and self.study.should_prune(self.number, self.steps)

    def _prune(self) -> None:
        assert self.process is not None
        self.study.prune(self.number)
        self.failures.record()
        self.state = "pruned"
        self._deadline = time.monotonic() + SAVE_SECONDS
        self.process.stop(signal.SIGTERM)

    def _finish(self) -> None:
        score = self._evaluations.last()
        if score is None or not math.isfinite(score):
            self._fail(f"no score: an evaluation is missing or not finite in {self.folder}", user_error=False)
            return
        self.value, self.state = score, "done"
        self.study.complete(self.number, score)
        self.failures.record()

    def _fail(self, error: str, *, user_error: bool) -> None:
        self.state, self.error, self.value = "failed", error, None
        self.failures.add(self.number, error.replace(str(self.folder), "TRIAL"), user_error=user_error)
