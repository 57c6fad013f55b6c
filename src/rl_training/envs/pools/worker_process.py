"""One worker process of a pool: it steps consecutive environments and replies over a pipe."""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any

from rl_training.envs.pools.group import EnvError, EnvGroup
from rl_training.envs.pools.shared_rows import SharedRows, StepArrays
from rl_training.messages import describe_error
from rl_training.processes import describe_exit, end_with_parent, one_thread_each, start_hidden

CLOSING_SECONDS = 3.0  # time limit for the workers to close their environments
IGNORED_SIGNALS = (signal.SIGINT, signal.SIGTERM)
SPIN_SECONDS = 0.003  # without sleep between two steps: waking up takes as long as a step of many environments
STEP, OBJECT = b"s", b"o"  # first byte of a message in either direction: a step begins or is done; an object follows


class WorkerDied(Exception):
    """The worker process has ended."""


class WorkerError(Exception):
    """The traceback of an error in a worker process."""


class Worker:
    """An `EnvGroup` in its own process, which exits when the pipe closes. Its steps use the shared `rows`.

    `spins`: both sides wait for a step without sleep at first. Each process then needs a core of its own.
    """

    def __init__(self, build: Callable[[], EnvGroup], shared: SharedRows, rows: slice, *, spins: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, worker_end = context.Pipe()
        lasting = threading.current_thread() is threading.main_thread()
        self._spin = SPIN_SECONDS if spins else 0.0
        options = (worker_end, build, shared, rows, lasting, self._spin)
        self.process = context.Process(target=serve, args=options, daemon=True)
        try:
            with one_thread_each():
                start_hidden(self.process, *IGNORED_SIGNALS)
        except OSError:
            raise
        except Exception as error:  # the function cannot be pickled
            raise TypeError(
                "with workers, env_id must be an id or a function that other processes can import, not a lambda"
            ) from error
        worker_end.close()
        self._replies = select.poll()  # `Connection.poll` creates a selector at each call
        self._replies.register(self._pipe.fileno(), select.POLLIN)
        # Runs on close, on garbage collection, and at exit before multiprocessing joins its children.
        self._deadline: list[float] = []
        self.close = Finalize(self, _close, (self._pipe, self.process, self._deadline), exitpriority=10)

    def send(self, method: str, *args: Any) -> None:
        with suppress(OSError):  # `receive` reports a dead worker
            _send_object(self._pipe, (method, args))

    def begin_step(self) -> None:
        with suppress(OSError):
            os.write(self._pipe.fileno(), STEP)

    def await_step(self) -> None:
        """Waits for the end of a step without sleep, for a short time; `receive` waits for the rest."""
        if self._spin and not self._pipe.closed:
            spin(self._replies, self._spin)

    def replies_within(self, seconds: float) -> bool:
        return self._pipe.closed or bool(self._replies.poll(seconds * 1000))  # `receive` reports a dead worker

    def receive(self) -> Any:
        """Returns the reply, which is True for a step."""
        try:
            if _receive_byte(self._pipe) == STEP:
                return True
            succeeded, reply = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise WorkerDied from error
        if not succeeded:
            message, trace = reply
            raise EnvError(message) from WorkerError(trace)
        return reply

    def hang_up(self, deadline: float) -> None:
        """Closes the pipe, which asks the worker to end; `close` waits for it until the deadline."""
        self._pipe.close()
        self._deadline.append(deadline)

    def end(self) -> str:
        """Describes how a dead worker ended."""
        self.process.join(CLOSING_SECONDS)  # its pipe may close before it ends
        code = self.process.exitcode
        self.close()
        return "closed its pipe" if code is None else describe_exit(code)


def _close(pipe: Connection, process: BaseProcess, deadline: list[float]) -> None:
    pipe.close()
    try:
        process.join(max(0.0, deadline[0] - time.monotonic()) if deadline else CLOSING_SECONDS)
    finally:  # also if a signal ends the waiting
        if process.is_alive():
            process.kill()
            process.join()
        process.close()  # its pipes would stay open until the garbage collector comes


def spin(messages: select.poll, seconds: float) -> None:
    """Returns as soon as there is a message, or after this time."""
    end = time.perf_counter() + seconds
    while not messages.poll(0) and time.perf_counter() < end:
        pass


def leave_signals_to_parent() -> None:
    """Ignores signals in this process: the parent process handles them and ends this one."""
    for number in IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED_SIGNALS)


def serve(
    pipe: Connection, build: Callable[[], EnvGroup], shared: SharedRows, rows: slice, lasting: bool, spin_seconds: float
) -> None:
    """Runs in the worker process: builds the group, then serves calls until the pipe closes.

    `lasting`: the thread that started this process lasts as long as the parent process.
    """
    leave_signals_to_parent()
    end_with_parent(signalled=lasting)
    built, group = _attempt(build)
    messages = select.poll()
    messages.register(pipe.fileno(), select.POLLIN)
    with suppress(EOFError, OSError):
        _send_object(pipe, (built, None if built else group))
        while built:
            if spin_seconds:
                spin(messages, spin_seconds)
            _reply(pipe, group, shared.arrays.rows(rows))
    if built:
        group.close()


def _reply(pipe: Connection, group: EnvGroup, arrays: StepArrays) -> None:
    """Waits for a message and replies to it."""
    if _receive_byte(pipe) == OBJECT:
        method, args = pipe.recv()
        _send_object(pipe, _attempt(getattr(group, method), *args))
        return
    succeeded, error = _attempt(group.step_in, arrays)
    if succeeded:
        os.write(pipe.fileno(), STEP)
    else:
        _send_object(pipe, (False, error))


def _send_object(pipe: Connection, value: Any) -> None:
    os.write(pipe.fileno(), OBJECT)
    pipe.send(value)


def _receive_byte(pipe: Connection) -> bytes:
    """Reads without the frame of `recv_bytes`, which takes several times as long."""
    received = os.read(pipe.fileno(), 1)
    if not received:
        raise EOFError
    return received


def _attempt(call: Callable[..., Any], *args: Any) -> tuple[bool, Any]:
    """Returns (True, result), or (False, (error message, traceback))."""
    try:
        return True, call(*args)
    except BaseException as error:  # SystemExit and KeyboardInterrupt of an environment are its errors, too
        message = str(error) if isinstance(error, EnvError) else f"a worker failed: {describe_error(error)}"
        return False, (message, "".join(traceback.format_exception(error)))
