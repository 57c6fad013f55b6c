"""A study that is killed, in parts or as a whole, and started again ends like one that was not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("optuna")

from rl_training.experiment.tuning.plan import read_plan
from rl_training.experiment.tuning.study import JOURNAL, Study, Trial

LONG = ["tune", "ppo/cartpole", "--search", "learning_rate=1e-5:1e-2:log", "--search", "batch_size=64,128,256",
        "--search", "gae_lambda=0.8:1", "--steps", "2048", "--set", "eval_interval=512", "--set", "eval_episodes=5",
        "--set", "checkpoint_interval=256", "--set", "log=none", "--seeds", "0", "--trials", "30",
        "--final-seeds", "100", "--episodes", "5"]  # fmt: skip


class Killed:
    """Starts the command of a study in a process group of its own, and kills it."""

    def __init__(self, command: list[str], folder: Path, start: Callable[..., subprocess.Popen[str]]) -> None:
        self.words, self.folder, self.start = [*command, "--output", str(folder), "--json"], folder, start
        self.lost: dict[Path, bytes] = {}  # what the logs of trials must begin with

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        process = self.start(*self.words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def kill_when(self, reached: Callable[[], bool], *, group: bool = True) -> None:
        """Kills the driver, with its trials or alone, when the condition holds."""
        with self.running() as process:
            deadline = time.monotonic() + 600
            while not reached():
                assert process.poll() is None, process.communicate()[1]
                assert time.monotonic() < deadline
                time.sleep(0.01)
            (os.killpg if group else os.kill)(process.pid, signal.SIGKILL)
            process.wait()
            wait_for_the_end_of_processes(self.folder)
        self.remember()

    def remember(self) -> None:
        """Notes the logs of ended trials, and those of the others up to their last checkpoint."""
        states = {trial.number: trial.state for trial in trials_in(self.folder)}
        for log in self.folder.glob("trials/*/seed_*/metrics.jsonl"):
            ended = states[int(log.parents[1].name)] != "running"
            kept = log.read_bytes() if ended else before_checkpoint(log)
            if len(kept) > len(self.lost.get(log, b"")):
                self.lost[log] = kept

    def finish(self) -> dict[str, Any]:
        with self.running() as process:
            output, errors = process.communicate(timeout=1200)
            assert process.returncode == 0, errors
            return dict(json.loads(output))

    def check(self, count: int) -> None:
        """Every trial is there once, and continued where it had saved."""
        trials = trials_in(self.folder)
        assert [trial.number for trial in trials] == list(range(count))
        assert {trial.state for trial in trials} <= {"done", "pruned"}
        folders = sorted(path.name for path in (self.folder / "trials").iterdir())
        assert folders == [f"{number:04}" for number in range(count)]
        lines = [json.loads(line) for line in (self.folder / JOURNAL).read_text().splitlines()]
        assert sum(line["op_code"] == 4 for line in lines) == count  # created trials
        assert sorted(line["trial_id"] for line in lines if line["op_code"] == 6) == list(range(count))  # ended trials
        assert len({json.dumps(trial.params) for trial in trials}) == count
        assert self.lost
        for log, kept in self.lost.items():
            assert log.read_bytes().startswith(kept), f"{log} was started over"
            steps = [json.loads(line)["step"] for line in log.read_bytes().splitlines()]
            assert steps == sorted(steps)


def before_checkpoint(log: Path) -> bytes:
    manifests = log.parent.glob("checkpoints/step_*/manifest.json")
    saved = max((int(path.parent.name[5:]) for path in manifests), default=0)
    lines = log.read_bytes().splitlines(keepends=True)
    return b"".join(line for line in lines if line.endswith(b"\n") and json.loads(line)["step"] < saved)


def trials_in(folder: Path) -> list[Trial]:
    return Study(folder, read_plan(folder).space()).trials() if (folder / "tune.yaml").exists() else []


def wait_for_the_end_of_processes(folder: Path) -> None:
    """Trials end by themselves after their driver, and release the lock of the study then."""
    import fcntl

    with (folder / ".lock").open("w") as lock:
        deadline = time.monotonic() + 20
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                assert time.monotonic() < deadline, "a trial has outlived its driver"
            time.sleep(0.05)


def start_process(*words: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "rl_training.cli", *words], text=True, **options)


@pytest.mark.usefixtures("forked_jobs")
@pytest.mark.timeout(600)
def test_a_study_killed_twice_has_the_same_trials_as_one_that_was_not(studies, tmp_path, start_command, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # pictures take longer than these trials
    command = [*studies.command, "--jobs", "1", "--no-baseline"]
    killed = Killed(command, tmp_path / "killed", start_command)
    folder = killed.folder
    killed.kill_when(lambda: (folder / "trials" / "0000").exists(), group=False)
    killed.kill_when(lambda: bool(list(folder.glob("trials/0001/seed_0/checkpoints/step_*"))))
    found = killed.finish()
    killed.check(4)
    whole = studies.report("--no-baseline")
    kept = ("number", "state", "value", "params", "error")
    assert [[trial[key] for key in kept] for trial in found["trials"]] == [
        [trial[key] for key in kept] for trial in whole["trials"]
    ]
    assert (found["best"], found["status"]) == (whole["best"], "done")


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_thirty_trials_killed_twice_are_thirty_trials(tmp_path):
    killed = Killed(LONG, tmp_path / "study", start_process)

    def saved_in(number: int) -> bool:
        return bool(list(killed.folder.glob(f"trials/{number:04}/seed_0/checkpoints/step_*")))

    killed.kill_when(lambda: saved_in(7))
    killed.kill_when(lambda: saved_in(19))
    found = killed.finish()
    killed.check(30)
    assert (found["status"], len(found["trials"])) == ("done", 30)
    assert found["best"]["seeds"] == [100]
