"""Jobs as processes: the limit, the signals, and no process left behind."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from rl_training.experiment.executors.base import Handle
from rl_training.experiment.processes import runner, signals
from rl_training.experiment.processes.runner import Job, run_jobs
from rl_training.experiment.processes.signals import forward_signal, hidden_from_ctrl_c

# Ends with exit code 7 after the given number of SIGTERM.
LISTEN = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
print("ready", flush=True)
for _ in range(int(sys.argv[1])):
    signal.sigwait({signal.SIGTERM})
sys.exit(7)
"""


class Python(Handle):
    """A Python process; `output` is its standard output."""

    def __init__(self, *arguments: str) -> None:
        with hidden_from_ctrl_c():
            self._process = subprocess.Popen([sys.executable, "-c", *arguments], stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.output = self._process.stdout

    def poll(self) -> int | None:
        return self._process.poll()

    def stop(self, number: int) -> None:
        forward_signal(number, self._process.pid)

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()


class Script(Job):
    process: Python | None = None

    def __init__(self, *arguments: str, stops_others: bool = False) -> None:
        self.arguments, self._stops = arguments, stops_others
        self.code: int | None = None

    @property
    def waiting(self) -> bool:
        return self.process is None and self.code is None

    @property
    def stops_others(self) -> bool:
        return self._stops and self.code is not None

    def start(self) -> None:
        self.process = Python(*self.arguments)
        if self.arguments[0] is LISTEN:
            self.process.output.readline()  # it waits for signals now

    def poll(self, *, stopping: bool) -> None:
        assert self.process is not None
        code = self.process.poll()
        if code is not None:
            self.process.output.close()
            self.code, self.process = code, None


def run_with_signals(jobs: list[Script], *numbers: int, limit: int = 9) -> list[int]:
    """Raises the signals in this process, one at each poll."""
    waiting = list(numbers)
    return run_jobs(jobs, limit=limit, watch=lambda: signal.raise_signal(waiting.pop(0)) if waiting else None)


def test_no_more_jobs_than_the_limit_run_at_a_time():
    jobs, counts = [Script("pass") for _ in range(3)], []
    assert run_jobs(jobs, limit=2, watch=lambda: counts.append(sum(job.process is not None for job in jobs))) == []
    assert [job.code for job in jobs] == [0, 0, 0]
    assert max(counts) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_every_running_job_and_starts_no_other(number):
    jobs = [Script(LISTEN, "1") for _ in range(3)]
    assert run_with_signals(jobs, number, limit=2) == [number]
    assert [job.code for job in jobs] == [7, 7, None]


def test_a_second_request_is_forwarded_too(monkeypatch):
    monkeypatch.setattr(signals, "ONE_REQUEST", 0.0)
    job = Script(LISTEN, "2")
    assert run_with_signals([job], signal.SIGTERM, signal.SIGTERM) == [signal.SIGTERM] * 2
    assert job.code == 7


def test_a_job_that_fails_for_all_stops_the_others():
    jobs = [Script(LISTEN, "1"), Script("raise SystemExit(2)", stops_others=True), Script("pass")]
    assert run_with_signals(jobs, limit=2) == []
    assert [job.code for job in jobs] == [7, 2, None]


def raise_error() -> None:
    raise KeyError("watch")


@pytest.mark.parametrize(("arguments", "ended_by"), [(("import time; time.sleep(999)",), 15), ((LISTEN, "9"), 9)])
def test_an_error_leaves_no_process_behind(monkeypatch, arguments, ended_by):
    monkeypatch.setattr(runner, "SAVE_SECONDS", 0.3)
    job = Script(*arguments)
    with pytest.raises(KeyError, match="watch"):
        run_jobs([job], limit=1, watch=raise_error)
    assert job.process is not None
    assert job.process.poll() == -ended_by
