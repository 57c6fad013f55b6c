"""Trains each seed in its own process, which reports progress and errors to its parent through a pipe."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from rl_training.experiment.config.train_config import TrainConfig
from rl_training.experiment.executors.base import Handle
from rl_training.experiment.processes.runner import Job
from rl_training.experiment.processes.signals import exit_code_of, forward_signal
from rl_training.experiment.run import run_training
from rl_training.experiment.seeds.progress import SeedProgress
from rl_training.experiment.user_errors import USER_ERRORS, message_of
from rl_training.processes import REPEATED, describe_exit, end_with_parent, start_hidden
from rl_training.runtime.callbacks.progress import REFRESH_SECONDS
from rl_training.runtime.engine import Callback
from rl_training.runtime.state import TrainerState


class SeedError(RuntimeError):
    """The process of a seed failed, and not because of user input."""


class Failure(NamedTuple):
    """An exception in parts that every process can unpickle."""

    kind: type[Exception]
    message: str
    trace: str

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Keeps the class if it is built in or ours; otherwise takes the nearest user error, or SeedError."""
        user_errors = [kind for kind in type(error).__mro__ if kind in USER_ERRORS]
        kind = next((kind for kind in (type(error), *user_errors) if _can_be_rebuilt(kind)), SeedError)
        message = message_of(error) if user_errors or kind is not type(error) else str(error)
        return cls(kind, message, "".join(traceback.format_exception(error)))


def _can_be_rebuilt(kind: type[Exception]) -> bool:
    """Whether the class is built in or ours, and `str(kind(message)) == message`.

    KeyError quotes its message, UnicodeDecodeError takes more arguments, and the command line would treat a
    BrokenPipeError as its own closed output.
    """
    if kind is BrokenPipeError or not (kind.__module__ == "builtins" or kind.__module__.startswith("rl_training.")):
        return False
    try:
        return str(kind("message")) == "message"
    except TypeError:
        return False


class SeedProcess(Handle):
    """A spawned process of this one."""

    def __init__(self, process: BaseProcess) -> None:
        self._process = process
        start_hidden(process, signal.SIGINT)

    def poll(self) -> int | None:
        return self._process.exitcode

    def stop(self, number: int) -> None:
        if self._process.pid is not None:
            forward_signal(number, self._process.pid)

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()


class SeedJob(Job):
    """One seed in a spawned process; `progress` and `failure` are the latest that it has sent."""

    def __init__(self, config: TrainConfig, callbacks: Sequence[Callback], *, fresh: bool) -> None:
        self.seed = config.seed
        self.progress: SeedProgress | None = None
        self.started_at: int | None = None  # the step at which its training started
        self.failure: Failure | None = None
        self.exit_code: int | None = None
        self.pipe: Connection | None = None
        self.messages: list[str] = []  # to print
        self._arguments = config, callbacks, fresh

    @property
    def waiting(self) -> bool:
        return self.pipe is None

    @property
    def trained(self) -> bool:
        return self.progress is not None and self.progress.step != self.started_at

    @property
    def stops_others(self) -> bool:
        return self.exit_code == REPEATED or (self.failure is not None and issubclass(self.failure.kind, USER_ERRORS))

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, child_pipe = context.Pipe(duplex=False)
        self.process = SeedProcess(context.Process(target=_train_one, args=(*self._arguments, child_pipe)))
        child_pipe.close()

    def poll(self, *, stopping: bool) -> None:
        assert self.process is not None
        code = self.process.poll()  # before reading, so that no message is left after the end
        self._receive()
        if code is not None:
            self.exit_code, self.process = code, None

    def _receive(self) -> None:
        assert self.pipe is not None
        try:
            while not self.pipe.closed and self.pipe.poll():
                message = self.pipe.recv()
                if isinstance(message, SeedProgress):
                    self.progress = message
                    self.started_at = message.step if self.started_at is None else self.started_at
                elif isinstance(message, Failure):
                    self.failure = message
                else:
                    self.messages.append(message)
        except (EOFError, OSError):  # the process has ended
            self.pipe.close()

    def raise_failure(self) -> None:
        """Raises the error of the process, if any; a user error exactly as a single run raises it."""
        if self.failure is not None:
            prefix = "" if self.stops_others else f"seed {self.seed}: "
            raise self.failure.kind(f"{prefix}{self.failure.message}") from SeedError(self.failure.trace)
        if self.exit_code:
            raise SeedError(f"seed {self.seed} {describe_exit(self.exit_code)}")


class ReportProgress(Callback):
    """Sends the progress of the run through the pipe; stops the run if the parent process has ended."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe, self._sent = pipe, 0.0
        self.started = False

    def on_train_start(self, state: TrainerState) -> None:
        self.started = True
        self._send(state)

    def on_step_end(self, state: TrainerState) -> None:
        if state.over or time.monotonic() - self._sent > REFRESH_SECONDS:
            self._send(state)

    def _send(self, state: TrainerState) -> None:
        self._sent = time.monotonic()
        evaluation = None if state.evaluation is None else state.evaluation["return_mean"]
        step = min(state.global_step, state.total_timesteps)
        try:
            self.pipe.send(SeedProgress(step, state.metrics.get("episode_return"), evaluation))
        except OSError:
            state.request_stop("the parent process has ended")


def _train_one(config: TrainConfig, callbacks: Sequence[Callback], fresh: bool, pipe: Connection) -> None:
    end_with_parent()
    report = ReportProgress(pipe)

    def exit_before_training(number: int, frame: Any) -> None:
        if not report.started:  # once training has started, the run saves first
            sys.exit(128 + number)

    signal.signal(signal.SIGTERM, exit_before_training)

    def send(message: str | Failure) -> None:
        with suppress(OSError):
            pipe.send(message)

    try:
        run_training(config, callbacks=[*callbacks, report], fresh=fresh, warn=send)
    except KeyboardInterrupt as error:  # the second request to stop
        sys.exit(exit_code_of(error))
    except Exception as error:
        send(Failure.of(error))
        sys.exit(1)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a SystemExit raised during exit would print a traceback
