"""Runs a command inside a Slurm job: saves before the time limit, requeues the job, and records how it ended."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

from rl_training.experiment.executors.base import LOG, Command
from rl_training.experiment.executors.local import LocalExecutor
from rl_training.files import read_json, write_atomically

SUBMITTED, ATTEMPT, OUTCOME = ".submitted.json", ".attempt.json", ".outcome.json"  # in the folder of the command
TIME_LIMIT = signal.SIGUSR2  # sent by Slurm some time before the limit
STOPPED = {128 + signal.SIGTERM, 128 + signal.SIGINT, -signal.SIGTERM, -signal.SIGINT}  # exit codes
IDLE_ATTEMPTS = 3  # a job that has started this often without a new checkpoint has failed
POLL_SECONDS = 0.1


def run_command(submission: str, name: str, folder: str, arguments: tuple[str, ...]) -> None:
    """The function that submitit calls in the job. It exits with the exit code of the command."""
    requests: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, TIME_LIMIT):
        signal.signal(number, lambda number, frame: requests.append(number))
    command = Command(name, arguments, Path(folder))
    if _idle_attempts(command.folder) >= IDLE_ATTEMPTS:
        message = (
            f"no checkpoint was saved in {IDLE_ATTEMPTS} attempts, each ended by the time limit, by preemption or by a "
            "lost node; give it more time with --slurm time=MINUTES"
        )
        with (command.folder / LOG).open("a", encoding="utf-8") as log:
            log.write(f"error: {message}\n")
        _end(command.folder, submission, 1, error=message)
    code = _run(command, requests)
    if code in STOPPED and set(requests) == {TIME_LIMIT} and _requeue():
        sys.exit(128 + signal.SIGTERM)
    again = code in STOPPED and set(requests) == {TIME_LIMIT}  # requeueing is not allowed: for the driver to submit
    _end(command.folder, submission, code, again=again)


def _run(command: Command, requests: list[int]) -> int:
    """Forwards the first request; when Slurm ends the job, it signals every process itself."""
    process, forwarded = LocalExecutor(1).submit(command), False
    while (code := process.poll()) is None:
        if requests and not forwarded:
            process.stop(signal.SIGTERM)
            forwarded = True
        time.sleep(POLL_SECONDS)
    return code


def _end(folder: Path, submission: str, code: int, *, again: bool = False, error: str | None = None) -> NoReturn:
    outcome = {"submission": submission, "code": code, "again": again, "error": error, "time": time.time()}
    write_atomically(folder / OUTCOME, json.dumps(outcome))
    sys.exit(code if code >= 0 else 128 - code)


def _idle_attempts(folder: Path) -> int:
    """Counts the attempts before this one that have saved nothing new, and records this one."""
    (folder / OUTCOME).unlink(missing_ok=True)
    last, now = read_json(folder / ATTEMPT), saved_files(folder)
    idle = last["idle"] + 1 if last.get("saved") == now else 0
    write_atomically(folder / ATTEMPT, json.dumps({"saved": now, "idle": idle}))
    return idle


def runs_of(folder: Path) -> Path:
    """The folder with the runs of a command: its own, or the one above if its own is a hidden one."""
    return folder.parent if folder.name.startswith(".") else folder


def saved_files(folder: Path) -> list[str]:
    """The checkpoints and results of a command."""
    top = runs_of(folder)
    found = [*top.glob("**/checkpoints/*"), *top.glob("**/result.json")]
    return sorted(str(path.relative_to(top)) for path in found if not path.name.startswith("."))


def _requeue() -> bool:
    """Puts this job back into the queue, with its own id: the id alone can stand for a whole array."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    job = os.environ["SLURM_JOB_ID"] if array is None else f"{array}_{task}"
    return subprocess.run(["scontrol", "requeue", job]).returncode == 0
