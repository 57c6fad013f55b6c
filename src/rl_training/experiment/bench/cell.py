"""Runs one cell of a bench: trains its seeds, then evaluates their last checkpoints."""

import hashlib
import json
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from rl_training.experiment.agent import read_record
from rl_training.experiment.bench.plan import BenchPlan, Cell
from rl_training.experiment.bench.scores import evaluate_command, is_scored_as, scoring_command
from rl_training.experiment.config.train_config import TrainConfig, parse_stored_config
from rl_training.experiment.executors.base import LOG, OUTPUT, Command, Executor, last_error
from rl_training.experiment.executors.job_log import JobLog
from rl_training.experiment.executors.local import LocalExecutor
from rl_training.experiment.processes.runner import Job
from rl_training.experiment.result import UNFINISHED
from rl_training.experiment.run_directory import LOCK_SECONDS, RunDirectory, RunLockedError, locked_file
from rl_training.experiment.trust import modules_of, warn_of_changed_source
from rl_training.messages import command
from rl_training.runtime.metrics_table import logged_rows

STATES = ("waiting", "queued", "training", "evaluating", "done", "failed", "stopped")


class CellRun(Job):
    """`state` is waiting, queued, training, evaluating, done, failed or stopped; `result` is set when it is done.

    On this machine a cell is two commands: one trains the seeds, one evaluates them. A remote executor runs
    `rl-training bench --cell`, which does both there.
    """

    def __init__(self, cell: Cell, plan: BenchPlan, directory: Path) -> None:
        self.cell, self.plan, self.folder = cell, plan, directory / cell.name
        self.config = cell.config(plan)
        self.result = self._stored_result()
        self.state = "waiting" if self.result is None else "done"
        self.error: str | None = None
        self.busy = False  # another process runs it
        self.executor: Executor = LocalExecutor()
        self.keep_open: tuple[int, ...] = ()  # file descriptors that processes inherit, such as the lock of the bench
        self.warnings: list[str] = []  # of its commands, not printed yet
        self._warnings = JobLog(self.folder / LOG)
        self._lock = ExitStack()
        self._trained: dict[str, Any] = {}
        self._start = (0.0, 0.0)  # time and progress

    @property
    def waiting(self) -> bool:
        return self.state == "waiting"

    @property
    def is_trained(self) -> bool:
        """Whether it was done once; if it is waiting now, its scores are those of other options."""
        return (self.folder / "result.json").exists()

    def stored_config(self) -> TrainConfig | None:
        """The config of its runs; None if there are none, or if an earlier version left none that can be read."""
        stored = RunDirectory(self.folder).read("result.json") or {}
        with suppress(ValueError):
            if stored.get("config") is not None:
                return parse_stored_config(stored["config"])
            return next(filter(None, (RunDirectory(run).config() for run in self.runs())), None)
        return None

    def warn_of_changed_sources(self) -> None:
        """Warns of an environment that was edited since a finished cell was trained; trainings warn themselves."""
        if self.state == "done":
            warn_of_changed_source(*map(read_record, self.runs()), warn=self.warnings.append, runs="the finished runs")

    def start(self) -> None:
        self._start = (time.monotonic(), self.progress())
        self.folder.mkdir(exist_ok=True)
        if self.executor.remote:
            bench = ["bench", "--output", str(self.folder.parent), "--cell", self.cell.name, "--json"]
            self._warnings = JobLog(self.folder / ".work" / LOG, skip=True)
            self._launch("training", ["rl_training.cli", *bench], self.folder / ".work")
            return
        busy = f"another process is running this cell in {self.folder}; repeat the command later for its result"
        try:
            lock = self._lock.enter_context(locked_file(self.folder / ".lock", busy, seconds=LOCK_SECONDS))
        except RunLockedError as error:
            self.state, self.error, self.busy = "failed", str(error), True
            return
        self.result = self._stored_result()
        if self.result is not None:  # the process that held the lock has finished the cell
            self.state = "done"
            self._lock.close()
            return
        self.keep_open = (*self.keep_open, lock)
        (self.folder / LOG).unlink(missing_ok=True)
        words = self.cell.train_command(self.plan, str(self.folder))
        self._launch("training", ["rl_training.cli", *words, "--json", "--quiet"])

    def poll(self, *, stopping: bool) -> None:
        assert self.process is not None
        code = self.process.poll()
        self._read_warnings()
        if code is None:
            if self.state in ("queued", "training"):
                self.state = "training" if self.process.started else "queued"
            return
        ended, self.process = self.process, None
        if ended.stopped:
            self.state, self.error = "stopped", ended.error
        elif code != 0 and not stopping:
            self.state, self.error = "failed", ended.error or last_error(self._log(), code)
        elif code == 0 and self.executor.remote:
            self._collect()
        elif code == 0 and self.state == "evaluating":
            self._finish(self._output())
        elif stopping:
            self.state = "stopped"
        else:
            self._trained = self._output()
            runs = [str(run) for run in self.runs()]
            trusted = ",".join(modules_of(self.config))
            self._launch("evaluating", scoring_command(self.plan, trusted, runs))
        if self.process is None:
            self._lock.close()

    def _read_warnings(self) -> None:
        """Reads new warnings. A command elsewhere prints them with the name of the cell, among changes of its state."""
        new, prefix = self._warnings.warnings(), f"{self.cell.name}: "
        if self.executor.remote:
            named = [line.removeprefix(prefix) for line in new if line.startswith(prefix)]
            new = [line for line in named if line.partition(":")[0] not in STATES]
        self.warnings += new

    def _log(self) -> Path:
        """The log of the training, or of the command that should have started it elsewhere."""
        own = self.folder / LOG
        return own if own.exists() else self.folder / ".work" / LOG

    def _output(self) -> Any:
        return json.loads((self.folder / OUTPUT).read_text(encoding="utf-8").splitlines()[-1])

    def _stored_result(self) -> dict[str, Any] | None:
        """Its result.json, unless the scores were made with other options than those of the plan."""
        result = RunDirectory(self.folder).read("result.json")
        return None if result is None or not is_scored_as(result, self.plan) else result

    def _collect(self) -> None:
        self.result = self._stored_result()
        self.state, self.error = "done", None
        if self.result is None:
            self.state, self.error = "failed", f"the cell ended without a result in {self.folder}"

    def runs(self) -> list[Path]:
        return [self.folder / f"seed_{seed}" for seed in self.plan.seeds]

    def progress(self) -> float:
        """Fraction of the steps of all seeds that are taken, according to their logs."""
        if self.state in ("evaluating", "done"):
            return 1.0
        return sum(_progress(run, self.config.duration) for run in self.runs()) / len(self.plan.seeds)

    def seconds_left(self) -> float | None:
        began, before = self._start
        return seconds_left(time.monotonic() - began, before, self.progress()) if self.state == "training" else None

    def _launch(self, state: str, arguments: list[str], folder: Path | None = None) -> None:
        submitted = Command(self.cell.name, tuple(arguments), folder or self.folder, self.keep_open)
        self.process = self.executor.submit(submitted)
        self.state = state if self.process.started else "queued"

    def _finish(self, scores: list[dict[str, Any]]) -> None:
        """Writes result.json, which holds everything that a comparison needs and can be copied without the runs."""
        runs = [{**trained, **run_facts(run), "score": score}
                for trained, run, score in zip(self._trained["runs"], self.runs(), scores, strict=True)]  # fmt: skip
        first = RunDirectory(self.runs()[0])
        record, config = first.read("run.json") or {}, first.config()
        commands = [self.cell.train_command(self.plan, "RUNS"), evaluate_command(self.plan)]
        self.result = {
            "cell": self.cell.name, "algo": self.cell.learner, "env": self.config.env_id, "dataset": self.cell.dataset,
            "commands": [command(*words) for words in commands],
            **{key: record.get(key) for key in ("versions", "hardware", "choices")},
            "config": None if config is None else config.model_dump(mode="json", exclude={"seed", "output_dir"}),
            "data": record.get("dataset"), "score": self.plan.score, "test": self.plan.test, **self._trained,
            "runs": runs,
        }  # fmt: skip
        RunDirectory(self.folder).write("result.json", self.result)
        self.state = "done"


def run_facts(run: Path) -> dict[str, Any]:
    """The commit, the environment's source file, hashes of the dataset and of the config, and the learning curve."""
    directory = RunDirectory(run)
    config = directory.config()
    text = "" if config is None else config.model_dump_json(exclude={"seed", "output_dir"})
    evaluations = [row["evaluation"] for row in logged_rows(run) if "evaluation" in row]
    record = directory.read("run.json") or {}
    return {
        "commit": record.get("git"), "env_source": record.get("env_source"),
        "data": record.get("dataset"),
        "config_hash": hashlib.sha256(text.encode()).hexdigest()[:12],
        "curve": [[evaluation["step"], evaluation["return_mean"]] for evaluation in evaluations],
    }  # fmt: skip


def seconds_left(elapsed: float, before: float, now: float) -> float | None:
    """Estimates the remaining time from progress `before` and `now`; None without progress."""
    return elapsed * (1 - now) / (now - before) if now > before else None


def _progress(run: Path, total: int) -> float:
    result = RunDirectory(run).read("result.json")
    if result is not None and result["status"] not in UNFINISHED:
        return 1.0
    rows = logged_rows(run, last_bytes=10_000)
    return min(rows[-1]["step"] / total, 1.0) if rows else 0.0
