"""Ends an environment call that does not return: at a request to stop, or after a time limit."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Interrupted(KeyboardInterrupt):
    """A request to stop has ended an environment call; the environments are in an unknown state."""


class EnvironmentCalls(threading.local):
    """Marks the environment calls of each thread. Only they may be interrupted."""

    running = False

    def __enter__(self) -> None:
        self.running = True

    def __exit__(self, *_: object) -> None:
        self.running = False

    def interrupt(self) -> None:
        """Raises `Interrupted` if this thread is in an environment call."""
        if self.running:
            raise Interrupted


environment_calls = EnvironmentCalls()


class CallTimeout(BaseException):
    """An environment call has taken longer than its limit. Not an Exception, which user code may catch."""


class CallLimit:
    """Limits the duration of each `with` block while it is `watching`; raises CallTimeout in the block.

    It uses SIGALRM, so it has no effect outside the main thread and does not interrupt native code.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self._began = seconds, 0.0

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._began = 0.0

    @contextmanager
    def watching(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        tick = max(0.01, min(0.25, self.seconds / 4))
        previous = signal.signal(signal.SIGALRM, self._tick)
        signal.setitimer(signal.ITIMER_REAL, tick, tick)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)

    def _tick(self, *_: Any) -> None:
        if self._began and time.monotonic() - self._began > self.seconds:
            self._began = time.monotonic()  # again after the limit, if user code catches the exception
            raise CallTimeout
