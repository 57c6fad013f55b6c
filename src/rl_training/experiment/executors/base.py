"""The protocol of executors: they run commands here or elsewhere and return handles.

A job (`processes.runner.Job`) is a seed, several seeds, a cell or a trial; it runs one command after another.
"""

import shutil
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

OUTPUT, LOG = "stdout.txt", "log.txt"  # of a command
FULL_BYTES = 2**20  # a disk with less is full: a checkpoint that did not fit may be removed again


class Command(NamedTuple):
    """A `python -m` command of a job. If it is repeated, it continues.

    `arguments` follow `python -m`. Standard output replaces `folder/stdout.txt`, and standard error is appended to
    `folder/log.txt`. A process on this machine inherits the file descriptors `keep_open`, such as a lock.
    """

    name: str
    arguments: tuple[str, ...]
    folder: Path
    keep_open: tuple[int, ...] = ()


class Handle(ABC):
    """A submitted command. `started` is False while it waits in a queue.

    After its end, `stopped` is True if someone else has stopped it, such as a user of the cluster, and `error` is the
    reason of its end if the executor knows more than the log.
    """

    started: bool = True
    stopped: bool = False
    error: str | None = None

    @abstractmethod
    def poll(self) -> int | None:
        """The exit code, negative after a signal; None while the command waits or runs. Called ten times a second."""

    @abstractmethod
    def stop(self, number: int) -> None:
        """Forwards a request to save and stop (SIGINT or SIGTERM); a second request ends the command at once."""

    @abstractmethod
    def kill(self) -> None: ...

    def terminate(self) -> None:
        self.stop(signal.SIGTERM)


class Executor(ABC):
    """Runs commands, at most `limit` at a time. A `remote` executor runs a whole cell of a bench as one command.

    With `one_folder`, a command may write below one folder of its `--output` only, the one that holds its own folder.
    """

    remote: bool = False
    one_folder: bool = False
    limit: int

    @property
    def parallel(self) -> int:
        """Jobs that run at a time; `limit` is larger where a queue holds those that wait."""
        return self.limit

    @abstractmethod
    def submit(self, command: Command) -> Handle: ...

    def close(self) -> None:  # noqa: B027  # most have nothing to end
        """Ends what the executor has started, such as a local Ray."""


def last_error(log: Path, code: int) -> str:
    """The last line of a log, or the exit code if there is none; after a lack of memory or disk space, with advice."""
    from rl_training.processes import describe_exit  # imports multiprocessing, which --help does not need

    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    lines = [line.strip().removeprefix("error: ") for line in text.split("\n") if line.strip()]
    if code == -signal.SIGKILL:
        return f"{describe_exit(code)}; if memory ran out, run fewer jobs at a time: give --memory or --jobs"
    if lines and "CUDA out of memory" in lines[-1]:
        return f"{lines[-1]}; run fewer jobs at a time on a GPU: give --gpu-memory or --slots"
    if lines:
        return lines[-1]
    full = f"; no space is left in {log.parent}: free some, or give another --output"
    return describe_exit(code) + (full if _is_full(log.parent) else "")


def _is_full(folder: Path) -> bool:
    """Whether the disk has no room for a log."""
    with suppress(OSError):  # the folder is gone
        return shutil.disk_usage(folder).free < FULL_BYTES
    return False


@dataclass(frozen=True)
class ExecutorOptions:
    """The executor that was asked for. `cpus`, `gpus`, `memory` and `gpu_memory` (bytes) are those of one job.

    `placed` is False if jobs choose their device themselves; see `opening.for_devices`.
    """

    name: str = "local"
    jobs: int | None = None
    devices: tuple[str, ...] = ()
    slots: int | None = None
    cpus: int | None = None
    gpus: float | None = None
    memory: int | None = None
    gpu_memory: int | None = None
    address: str | None = None
    slurm: Mapping[str, str] = field(default_factory=dict)
    placed: bool = True
