"""Runs jobs as processes: a limited number at a time, with every signal forwarded to each process once."""

from __future__ import annotations

import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from rl_training.experiment.executors.base import Handle
from rl_training.experiment.processes.signals import caught_signals

POLL_SECONDS = 0.1
SAVE_SECONDS = 60  # a process that takes longer to end after SIGTERM is killed


class Job(ABC):
    """A unit that `--jobs` counts: a seed, several seeds, a cell or a trial. It runs one process, or several in turn.

    `process` is the one that runs, if any.
    """

    process: Handle | None = None

    @property
    @abstractmethod
    def waiting(self) -> bool:
        """Whether the job has yet to start."""

    @property
    def stops_others(self) -> bool:
        """Whether this job has failed in a way that stops all jobs."""
        return False

    @abstractmethod
    def start(self) -> None:
        """Starts `process` inside `hidden_from_ctrl_c`."""

    @abstractmethod
    def poll(self, *, stopping: bool) -> None:
        """Reads the output of `process`. After its end, starts the next process or sets `process` to None."""


def run_jobs(jobs: Sequence[Job], *, limit: int, watch: Callable[[], None]) -> list[int]:
    """Runs the waiting jobs, at most `limit` at a time, and returns the requests to stop (signals).

    After the first request every process saves and ends; the second ends it at once. `watch` is called at every poll.
    No process outlives this call.
    """
    with caught_signals() as caught:
        try:
            _run(jobs, limit, watch, caught)
        finally:
            end_processes([job.process for job in jobs if job.process is not None])
    return caught


def _run(jobs: Sequence[Job], limit: int, watch: Callable[[], None], caught: list[int]) -> None:
    forwarded = 0
    while True:
        for job in _running(jobs):
            job.poll(stopping=bool(caught))
        for job in (job for job in jobs if job.waiting):
            if len(_running(jobs)) < limit and not _requests(jobs, caught):
                job.start()
        watch()
        if not (running := _running(jobs)):
            return
        requests = _requests(jobs, caught)
        for _ in range(forwarded, requests):
            for job in running:
                if job.process is not None and job.process.poll() is None:
                    job.process.stop(caught[0] if caught else signal.SIGTERM)
        forwarded = requests
        time.sleep(POLL_SECONDS)


def _running(jobs: Sequence[Job]) -> list[Job]:
    return [job for job in jobs if job.process is not None]


def _requests(jobs: Sequence[Job], caught: Sequence[int]) -> int:
    return len(caught) + any(job.stops_others for job in jobs)


def end_processes(processes: Sequence[Handle]) -> None:
    """Terminates the processes, and kills those that have not ended after `SAVE_SECONDS`."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + SAVE_SECONDS
    for process in processes:
        while process.poll() is None:
            if time.monotonic() > deadline:
                process.kill()
            time.sleep(POLL_SECONDS / 10)
