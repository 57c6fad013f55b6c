"""A cell of a bench at work: a process that trains its seeds, then one that plays their last checkpoints."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rl_training.experiment.bench.plan import BenchPlan, Cell
from rl_training.experiment.bench.scoring import EVALUATION_SEED
from rl_training.experiment.run_directory import RunDirectory
from rl_training.experiment.signals import hidden_from_ctrl_c, pass_on

PATIENCE = 60  # seconds that a process gets to save


class CellRun:
    """`state` is waiting, training, evaluating, done, failed or stopped; `result` is there once it is done."""

    def __init__(self, cell: Cell, plan: BenchPlan, directory: Path) -> None:
        self.cell, self.plan, self.folder = cell, plan, directory / cell.name
        self.config = cell.config(plan)
        self.result = RunDirectory(self.folder).read("result.json")
        self.state = "waiting" if self.result is None else "done"
        self.error: str | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self._trained: dict[str, Any] = {}
        self._start = (0.0, 0.0)  # when, and how far it had come before

    def start(self, lock: int) -> None:
        """Go on with what its folder holds; the lock is kept by whatever process still writes there."""
        self._start = (time.monotonic(), self.progress())
        self.folder.mkdir(exist_ok=True)
        (self.folder / "log.txt").unlink(missing_ok=True)
        train = ["rl_training.cli", *self.cell.train_command(self.plan, str(self.folder)), "--json", "--quiet"]
        self._launch("training", train, lock)

    def poll(self, lock: int, *, stopping: bool) -> None:
        """See whether its process has ended, and do what comes next."""
        if self.process is None or self.process.poll() is None:
            return
        code, self.process = self.process.returncode, None
        lines = (self.folder / "stdout.txt").read_text(encoding="utf-8").splitlines()
        if code != 0 and not stopping:
            self.state, self.error = "failed", self._last_words(code)
        elif code == 0 and self.state == "evaluating":
            self._finish(json.loads(lines[-1]))
        elif stopping:
            self.state = "stopped"
        else:
            self._trained = json.loads(lines[-1])
            runs = [str(run) for run in self.runs()]
            self._launch("evaluating", ["rl_training.experiment.bench.scoring", str(self.plan.episodes), *runs], lock)

    def stop(self, number: int) -> None:
        """Ask its process to save and end, as the signal did that came; asked again, it ends at once."""
        if self.process is not None and self.process.poll() is None:
            pass_on(number, self.process.pid)

    def end(self) -> None:
        """Leave no process behind."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def runs(self) -> list[Path]:
        return [self.folder / f"seed_{seed}" for seed in self.plan.seeds]

    def progress(self) -> float:
        """The share of all seeds' steps that are taken, as their logs tell it."""
        if self.state in ("evaluating", "done"):
            return 1.0
        return sum(_share(run, self.config.duration) for run in self.runs()) / len(self.plan.seeds)

    def seconds_left(self) -> float | None:
        began, before = self._start
        return seconds_left(time.monotonic() - began, before, self.progress()) if self.state == "training" else None

    def _launch(self, state: str, arguments: list[str], lock: int) -> None:
        self.state = state
        output, log = self.folder / "stdout.txt", self.folder / "log.txt"
        with output.open("wb") as output_file, log.open("ab") as log_file, hidden_from_ctrl_c():
            self.process = subprocess.Popen(
                [sys.executable, "-m", *arguments], stdin=subprocess.DEVNULL, stdout=output_file, stderr=log_file,
                env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}, pass_fds=[lock],
            )  # fmt: skip

    def _last_words(self, code: int) -> str:
        lines = (self.folder / "log.txt").read_text(encoding="utf-8", errors="replace").split("\n")
        said = [line.strip().removeprefix("error: ") for line in lines if line.strip()]
        ending = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return said[-1] if said else ending

    def _finish(self, played: list[dict[str, Any]]) -> None:
        """The folder then holds all that a comparison needs in one file, which may travel without the runs."""
        runs = [{**told, **facts_of(run), "score": score}
                for told, run, score in zip(self._trained["runs"], self.runs(), played, strict=True)]  # fmt: skip
        record = RunDirectory(self.runs()[0]).read("run.json") or {}
        evaluate = ["evaluate", "RUN", "--episodes", str(self.plan.episodes), "--seed", str(EVALUATION_SEED)]
        commands = [self.cell.train_command(self.plan, "RUNS"), evaluate]
        self.result = {
            "cell": self.cell.name,
            "algo": self.cell.learner,
            "env": self.config.env_id,
            "dataset": self.cell.dataset,
            "commands": [shlex.join(["rl-training", *words]) for words in commands],
            **{key: record.get(key) for key in ("versions", "hardware", "choices")},
            "data": record.get("dataset"),
            **self._trained,
            "runs": runs,
        }
        RunDirectory(self.folder).write("result.json", self.result)
        self.state = "done"


def facts_of(run: Path) -> dict[str, Any]:
    """The code and the config that a run came from, and its evaluations on the way."""
    directory = RunDirectory(run)
    config = directory.config()
    known = "" if config is None else config.model_dump_json(exclude={"seed", "output_dir"})
    evaluations = [row["evaluation"] for row in metrics(run) if "evaluation" in row]
    return {
        "commit": (directory.read("run.json") or {}).get("git"),
        "config_hash": hashlib.sha256(known.encode()).hexdigest()[:12],
        "curve": [[evaluation["step"], evaluation["return_mean"]] for evaluation in evaluations],
    }


def seconds_left(elapsed: float, before: float, now: float) -> float | None:
    """At the pace so far; None before there is one."""
    return elapsed * (1 - now) / (now - before) if now > before else None


def metrics(run: Path, *, last_bytes: int | None = None) -> list[dict[str, Any]]:
    """The whole lines of a run's log, or of its end."""
    file = run / "metrics.jsonl"
    if not file.exists():
        return []
    with file.open("rb") as log:
        cut = last_bytes is not None and log.seek(0, os.SEEK_END) > last_bytes
        log.seek(-(last_bytes or 0) if cut else 0, os.SEEK_END if cut else os.SEEK_SET)
        lines = log.read().split(b"\n")[1 if cut else 0 : -1]  # what follows the last line end is still being written
    return [json.loads(line) for line in lines]


def _share(run: Path, total: int) -> float:
    ended = RunDirectory(run).read("result.json")
    if ended is not None and ended["status"] != "stopped":
        return 1.0
    rows = metrics(run, last_bytes=10_000)
    return min(rows[-1]["step"] / total, 1.0) if rows else 0.0
