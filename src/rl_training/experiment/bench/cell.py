"""Runs one cell of a bench: a process that trains its seeds, then a process that evaluates their last checkpoints."""

import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rl_training.experiment.bench.plan import BenchPlan, Cell
from rl_training.experiment.bench.scoring import EVALUATION_SEED
from rl_training.experiment.processes.runner import Job, exit_code
from rl_training.experiment.processes.signals import hidden_from_ctrl_c
from rl_training.experiment.result import UNFINISHED
from rl_training.experiment.run_directory import RunDirectory
from rl_training.experiment.trust import modules_of
from rl_training.processes import describe_exit, starter_variable


class CellRun(Job):
    """`state` is waiting, training, evaluating, done, failed or stopped; `result` is set when it is done."""

    def __init__(self, cell: Cell, plan: BenchPlan, directory: Path) -> None:
        self.cell, self.plan, self.folder = cell, plan, directory / cell.name
        self.config = cell.config(plan)
        self.result = RunDirectory(self.folder).read("result.json")
        self.state = "waiting" if self.result is None else "done"
        self.error: str | None = None
        self.keep_open: tuple[int, ...] = ()  # file descriptors that processes inherit, such as the lock of the bench
        self._trained: dict[str, Any] = {}
        self._start = (0.0, 0.0)  # time and progress

    @property
    def waiting(self) -> bool:
        return self.state == "waiting"

    def start(self) -> None:
        self._start = (time.monotonic(), self.progress())
        self.folder.mkdir(exist_ok=True)
        (self.folder / "log.txt").unlink(missing_ok=True)
        command = self.cell.train_command(self.plan, str(self.folder))
        self._launch("training", ["rl_training.cli", *command, "--json", "--quiet"])

    def poll(self, *, stopping: bool) -> None:
        assert self.process is not None
        code = exit_code(self.process)
        if code is None:
            return
        self.process = None
        lines = (self.folder / "stdout.txt").read_text(encoding="utf-8").splitlines()
        if code != 0 and not stopping:
            self.state, self.error = "failed", self._error_message(code)
        elif code == 0 and self.state == "evaluating":
            self._finish(json.loads(lines[-1]))
        elif stopping:
            self.state = "stopped"
        else:
            self._trained = json.loads(lines[-1])
            runs = [str(run) for run in self.runs()]
            trusted = ",".join(modules_of(self.config))
            scoring = ["rl_training.experiment.bench.scoring", str(self.plan.episodes), trusted, *runs]
            self._launch("evaluating", scoring)

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

    def _launch(self, state: str, arguments: list[str]) -> None:
        self.state = state
        output, log = self.folder / "stdout.txt", self.folder / "log.txt"
        with output.open("wb") as output_file, log.open("ab") as log_file, hidden_from_ctrl_c():
            self.process = subprocess.Popen(
                [sys.executable, "-m", *arguments], stdin=subprocess.DEVNULL, stdout=output_file, stderr=log_file,
                env={**os.environ, **starter_variable(), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
                pass_fds=self.keep_open,
            )  # fmt: skip

    def _error_message(self, code: int) -> str:
        """The last line of the log, or the exit code if the log is empty."""
        text = (self.folder / "log.txt").read_text(encoding="utf-8", errors="replace")
        lines = [line.strip().removeprefix("error: ") for line in text.split("\n") if line.strip()]
        return lines[-1] if lines else describe_exit(code)

    def _finish(self, scores: list[dict[str, Any]]) -> None:
        """Writes result.json, which holds everything that a comparison needs and can be copied without the runs."""
        runs = [{**trained, **run_facts(run), "score": score}
                for trained, run, score in zip(self._trained["runs"], self.runs(), scores, strict=True)]  # fmt: skip
        record = RunDirectory(self.runs()[0]).read("run.json") or {}
        evaluate = ["evaluate", "RUN", "--episodes", str(self.plan.episodes), "--seed", str(EVALUATION_SEED)]
        commands = [self.cell.train_command(self.plan, "RUNS"), evaluate]
        self.result = {
            "cell": self.cell.name, "algo": self.cell.learner, "env": self.config.env_id, "dataset": self.cell.dataset,
            "commands": [shlex.join(["rl-training", *words]) for words in commands],
            **{key: record.get(key) for key in ("versions", "hardware", "choices")},
            "data": record.get("dataset"), **self._trained, "runs": runs,
        }  # fmt: skip
        RunDirectory(self.folder).write("result.json", self.result)
        self.state = "done"


def run_facts(run: Path) -> dict[str, Any]:
    """The commit, a hash of the config without its seed, and the learning curve."""
    directory = RunDirectory(run)
    config = directory.config()
    text = "" if config is None else config.model_dump_json(exclude={"seed", "output_dir"})
    evaluations = [row["evaluation"] for row in metrics(run) if "evaluation" in row]
    return {
        "commit": (directory.read("run.json") or {}).get("git"),
        "config_hash": hashlib.sha256(text.encode()).hexdigest()[:12],
        "curve": [[evaluation["step"], evaluation["return_mean"]] for evaluation in evaluations],
    }


def seconds_left(elapsed: float, before: float, now: float) -> float | None:
    """Estimates the remaining time from progress `before` and `now`; None without progress."""
    return elapsed * (1 - now) / (now - before) if now > before else None


def metrics(run: Path, *, last_bytes: int | None = None) -> list[dict[str, Any]]:
    """The complete lines of a run's metrics.jsonl, or of its last bytes."""
    file = run / "metrics.jsonl"
    if not file.exists():
        return []
    with file.open("rb") as log:
        cut = last_bytes is not None and log.seek(0, os.SEEK_END) > last_bytes
        log.seek(-(last_bytes or 0) if cut else 0, os.SEEK_END if cut else os.SEEK_SET)
        lines = log.read().split(b"\n")[1 if cut else 0 : -1]  # the last line may be incomplete
    return [json.loads(line) for line in lines]


def _progress(run: Path, total: int) -> float:
    result = RunDirectory(run).read("result.json")
    if result is not None and result["status"] not in UNFINISHED:
        return 1.0
    rows = metrics(run, last_bytes=10_000)
    return min(rows[-1]["step"] / total, 1.0) if rows else 0.0
