"""Slurm's commands: lists jobs, stops them and finds out how they ended, with or without accounting (sacct)."""

import os
import subprocess
from collections.abc import Collection, Sequence
from typing import NamedTuple

COMMAND_SECONDS = 60
RUNNING = {"RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING", "SUSPENDED", "STOPPED", "RESIZING"}

ORDINARY = {"None", "Priority", "Resources", "JobArrayTaskLimit", "BeginTime", "Dependency", "Licenses", "Reservation"}


class SlurmError(RuntimeError):
    """A command of Slurm failed."""


class Place(NamedTuple):
    """One task of a job array: the name of the array, which is unique, and its number there."""

    submission: str
    task: int


class Listed(NamedTuple):
    """A job in the queue. `job` is the id that scancel takes, such as 12_3; `reason` is why it waits."""

    job: str
    state: str
    reason: str

    @property
    def started(self) -> bool:
        return self.state in RUNNING

    @property
    def held_back(self) -> bool:
        """Whether it waits for something other than its turn, such as a time limit above that of the partition."""
        return self.state == "PENDING" and self.reason not in ORDINARY


def listed_jobs(submissions: Collection[str]) -> dict[Place, Listed]:
    """The jobs of these submissions that wait or run."""
    if not submissions:
        return {}
    names = ",".join(sorted(submissions))
    mine = ["squeue", "--noheader", "--array", f"--user={os.getuid()}"]
    lines = _run([*mine, f"--name={names}", "--format=%i|%K|%T|%r|%j"]).splitlines()
    found = [line.strip().split("|", 4) for line in lines if line.count("|") >= 4]
    return {
        Place(name, int(task) if task.isdecimal() else 0): Listed(job, state, reason)
        for job, task, state, reason, name in found
    }


def request_stop(jobs: Sequence[str]) -> None:
    """Cancels those that wait, and sends SIGTERM to the processes of those that run."""
    _try(["scancel", "--quiet", "--state=PENDING", *jobs])
    # Without the state, scancel would signal a job that is about to start again and again, for a minute.
    _try(["scancel", "--quiet", "--state=RUNNING", "--batch", "--signal=TERM", *jobs])


def cancel(jobs: Sequence[str]) -> None:
    _try(["scancel", "--quiet", *jobs])


def final_state(job: str) -> str | None:
    """CANCELLED, TIMEOUT, ... of a job that has ended; None if the cluster keeps no record of it."""
    state = (_try(["sacct", "-X", "--noheader", "--parsable2", "--format=State", "--jobs", job]) or "").split()
    if state and not state[0].startswith("UNKNOWN"):
        return state[0]
    words = (_try(["scontrol", "--oneliner", "show", "job", job]) or "").split()
    return next((word.removeprefix("JobState=") for word in words if word.startswith("JobState=")), None)


def _try(command: Sequence[str]) -> str | None:
    """The output; None if the command failed, for instance because the job has ended or is not known any more."""
    try:
        return _run(command)
    except SlurmError:
        return None


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmError(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise SlurmError(lines[-1] if lines else f"{command[0]} ended with exit code {done.returncode}")
    return done.stdout
