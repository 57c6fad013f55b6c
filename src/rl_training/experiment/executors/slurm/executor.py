"""Runs each command as a job of a Slurm cluster, submitted through submitit as job arrays.

Jobs belong to the cluster: they go on if this process is killed, and the same command finds them again by the name of
their array, which is stored in the folder of each command before the array is submitted.
"""

import contextlib
import io
import json
import os
import secrets
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rl_training.experiment.config.messages import ConfigError
from rl_training.experiment.executors.base import Command, Executor, ExecutorOptions, Handle
from rl_training.experiment.executors.slurm.job import (
    ATTEMPT,
    OUTCOME,
    STOPPED,
    SUBMITTED,
    run_command,
    runs_of,
    saved_files,
)
from rl_training.experiment.executors.slurm.queue import (
    Listed,
    Place,
    SlurmError,
    cancel,
    final_state,
    listed_jobs,
    request_stop,
)
from rl_training.experiment.executors.slurm.settings import read_settings
from rl_training.files import read_json, write_atomically
from rl_training.messages import print_warning

QUERY_SECONDS = (2.0, 20.0)  # between two questions to Slurm: soon after a submission, and later
SAVE_SECONDS = 60  # a job that takes longer to end after SIGTERM is cancelled
ABSENT_QUERIES = 3  # a job that has left the queue this often without an outcome is lost: files can arrive late
START_SECONDS = 10  # a job that has ended in this time before the first poll ended while this command started
LOST_JOBS = 3  # of one command that may be lost in a row without a new checkpoint
ALIVE = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED", "SUSPENDED"}
ARRAY_SIZE = 1000  # the default limit of Slurm is 1001
NO_SLURM = (
    "--executor slurm needs Slurm's command sbatch, which is not on this machine; start the command on a login node of "
    "the cluster. A job of another scheduler can run one seed (`train --seed`) or one cell of a bench (`bench --cell`)"
)
FILES = ".slurm"  # folder for the files of submitit


class SlurmHandle(Handle):
    """A job; `place` is None until it is submitted."""

    started = False

    def __init__(self, command: Command, executor: "SlurmExecutor") -> None:
        self.command, self._executor = command, executor
        self.place: Place | None = None
        self.job = ""  # its id
        self.code: int | None = None
        self.requests = 0  # to stop
        self.stop_by = float("inf")  # the time at which a job that stops is cancelled
        self.lost = 0
        self._absent, self._saved = 0, saved_files(command.folder)

    def poll(self) -> int | None:
        if self.code is None:
            self._executor.refresh()
        return self.code

    def stop(self, number: int) -> None:
        self.requests += 1
        if self.place is None:
            self.code = -number
        elif self.requests == 1:
            self.stop_by = time.monotonic() + SAVE_SECONDS
            self._executor.query_soon()
        else:
            self.kill()

    def kill(self) -> None:
        self.requests += 1
        if self.place is None:
            self.code = -signal.SIGKILL
        elif self.stop_by > 0:
            self.stop_by = 0.0
            self._executor.query_soon()

    def submitted(self, place: Place, job: str) -> None:
        self.place, self.job, self.started, self._absent = place, job, False, 0

    def update(self, listed: Listed | None) -> None:
        """Takes the state of the queue, in which ended jobs are missing."""
        if listed is not None:
            self.job, self.started, self._absent = listed.job, listed.started, 0
            return
        outcome = _outcome(self.command, self.place)
        self._absent += 1
        if outcome is not None or self._absent >= ABSENT_QUERIES or self.requests:
            self._end(outcome)

    def _end(self, outcome: dict[str, Any] | None) -> None:
        code = None if outcome is None else outcome["code"]
        if self.requests:
            self.code = -signal.SIGTERM if code is None else code
        elif outcome is not None and code not in STOPPED:
            self.code, self.error = code, outcome.get("error")
        else:
            self._end_of_slurm(final_state(self.job), again=outcome is None or outcome["again"])

    def _end_of_slurm(self, state: str | None, *, again: bool) -> None:
        """Submits the command again, unless its job was cancelled, ran out of memory, or never saves."""
        if state in ALIVE and self._absent < 10 * ABSENT_QUERIES:  # it is about to be requeued
            return
        saved = saved_files(self.command.folder)
        self.lost, self._saved = (self.lost + 1 if saved == self._saved else 1), saved
        if state == "CANCELLED" or (state is None and not again):
            self.code, self.stopped = 128 + signal.SIGTERM, True
            self.error = f"job {self.job} was cancelled; repeat the command to continue"
        elif state == "OUT_OF_MEMORY":
            self.code, self.error = 1, f"job {self.job} ran out of memory; give it more with --memory"
        elif self.lost > LOST_JOBS:
            ended, log = f"job {self.job} ended without a result", self._executor.log_of(self)
            self.code = 1
            self.error = f"{ended} ({state or 'unknown to Slurm'}), and so did {LOST_JOBS} before it; see {log}"
        else:
            self.place = None
            self._executor.submit_again(self)


class SlurmExecutor(Executor):
    """Collects commands until the first poll, and submits them as one job array. Slurm limits the jobs at a time."""

    remote = True
    limit = sys.maxsize

    def __init__(self, options: ExecutorOptions) -> None:
        self._settings = read_settings(options)
        if shutil.which("sbatch") is None or shutil.which("srun") is None:
            raise ConfigError(NO_SLURM)
        self._waiting: list[SlurmHandle] = []  # not submitted
        self._handles: list[SlurmHandle] = []  # submitted, and not ended
        self._files: dict[str, Path] = {}  # the folder of submitit, of each submission
        self._submitted = self._next_query = 0.0  # times
        self._warned = False
        self._reasons: set[str] = set()  # reasons to wait that were reported

    @property
    def parallel(self) -> int:
        return self._settings.jobs or self.limit

    def submit(self, command: Command) -> SlurmHandle:
        handle = SlurmHandle(command, self)
        self._waiting.append(handle)
        return handle

    def submit_again(self, handle: SlurmHandle) -> None:
        self._handles.remove(handle)
        self._waiting.append(handle)

    def query_soon(self) -> None:
        self._next_query = 0.0

    def log_of(self, handle: SlurmHandle) -> Path:
        assert handle.place is not None
        return self._files.get(handle.place.submission, handle.command.folder) / f"{handle.job}_0_log.out"

    def refresh(self) -> None:
        """Submits what waits, forwards requests to stop, and asks Slurm for the state of the jobs now and then."""
        waiting, self._waiting = [each for each in self._waiting if each.code is None], []
        if waiting:
            self._submit(waiting)
        now = time.monotonic()
        if now < self._next_query:
            return
        shortest, longest = QUERY_SECONDS
        self._next_query = now + min(max((now - self._submitted) / 20, shortest), longest)
        self._stop_jobs(now)
        try:
            listed = listed_jobs({each.place.submission for each in self._handles if each.place is not None})
        except SlurmError as error:  # the controller is busy or restarts
            if not self._warned:
                print_warning(f"Slurm does not answer ({error}); jobs go on, and the state shown is the last known one")
            self._warned = True
            return
        self._warned = False
        self._warn_of_held_jobs(listed.values())
        for handle in list(self._handles):
            if handle.place is not None:
                handle.update(listed.get(handle.place))
        self._handles = [each for each in self._handles if each.code is None]

    def _warn_of_held_jobs(self, listed: Iterable[Listed]) -> None:
        """Reports each reason once, since such a job may never start."""
        for reason, job in {each.reason: each.job for each in listed if each.held_back}.items():
            if reason not in self._reasons:
                print_warning(f"job {job} may never start ({reason}); see `scontrol show job {job}`")
                self._reasons.add(reason)

    def _stop_jobs(self, now: float) -> None:
        stopping = [each for each in self._handles if each.requests]
        if overdue := [each.job for each in stopping if now >= each.stop_by]:
            cancel(overdue)
        if saving := [each.job for each in stopping if now < each.stop_by]:
            request_stop(saving)

    def _submit(self, handles: Sequence[SlurmHandle]) -> None:
        """Attaches to jobs that are in the queue already, and submits the other commands."""
        self._submitted, self._next_query = time.monotonic(), 0.0
        new = self._attach(handles)
        for start in range(0, len(new), ARRAY_SIZE):
            array = new[start : start + ARRAY_SIZE]
            name = f"{self._settings.name}-{secrets.token_hex(4)}"
            for task, handle in enumerate(array):
                if handle.lost == 0:
                    (handle.command.folder / ATTEMPT).unlink(missing_ok=True)
                _record(handle.command, Place(name, task))
            for task, (handle, job) in enumerate(zip(array, self._submit_array(name, array), strict=True)):
                handle.submitted(Place(name, task), job)
                self._handles.append(handle)

    def _attach(self, handles: Sequence[SlurmHandle]) -> list[SlurmHandle]:
        """Returns the handles without a job in the queue, or one that has ended while this command started."""
        records = {each: read_json(each.command.folder / SUBMITTED) for each in handles if each.lost == 0}
        places = {each: Place(**record) for each, record in records.items() if record}
        try:
            listed = listed_jobs({place.submission for place in places.values()})
        except SlurmError as error:
            raise ConfigError(f"Slurm does not answer: {error}") from error
        for handle, place in places.items():
            outcome = _outcome(handle.command, place)
            if place in listed:
                handle.submitted(place, listed[place].job)
                self._handles.append(handle)
            elif outcome is not None and outcome["code"] == 0 and outcome["time"] > time.time() - START_SECONDS:
                handle.code = 0
        return [each for each in handles if each.place is None and each.code is None]

    def _submit_array(self, name: str, handles: Sequence[SlurmHandle]) -> list[str]:
        """Submits one job array and returns the ids of its jobs. The pickles of submitit hold only strings."""
        import submitit
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        folders = [os.path.abspath(each.command.folder) for each in handles]
        self._files[name] = files = runs_of(Path(folders[0])).parent / FILES
        executor = submitit.SlurmExecutor(folder=files, python=f"exec {shlex.quote(sys.executable)}")
        parallel = self._settings.jobs or len(handles)
        executor.update_parameters(**self._settings.parameters, job_name=name, array_parallelism=parallel)
        names, arguments = [each.command.name for each in handles], [each.command.arguments for each in handles]
        with contextlib.redirect_stderr(io.StringIO()):  # submitit prints what it raises
            try:
                jobs = executor.map_array(run_command, [name] * len(handles), names, folders, arguments)
            except (FailedJobError, FailedSubmissionError) as error:
                reasons = [line.removeprefix("sbatch: error: ") for line in str(error).splitlines() if line.strip()]
                raise ConfigError(f"Slurm refused the jobs: {'; '.join(reasons)}") from error
        return [job.job_id for job in jobs]


def _outcome(command: Command, place: Place | None) -> dict[str, Any] | None:
    """How the job in this place has ended, as it has recorded it; None if it runs or was killed."""
    outcome = read_json(command.folder / OUTCOME)
    return None if place is None or outcome.get("submission") != place.submission else outcome


def _record(command: Command, place: Place) -> None:
    command.folder.mkdir(parents=True, exist_ok=True)
    write_atomically(command.folder / SUBMITTED, json.dumps(place._asdict()))
