"""Handles SIGTERM and Ctrl-C (SIGINT) as requests to save and stop."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NoReturn

from rl_training.processes import hidden_from

ONE_REQUEST = 1.0  # the same signal within this many seconds belongs to the same request
OVERDUE_SECONDS = 3.0  # after the first request


class StopAtOnce(KeyboardInterrupt):
    """The second request to stop, with the number of its signal."""

    def __init__(self, number: int) -> None:
        super().__init__(stop_reason(number))
        self.number = number


def exit_code_of(interrupt: KeyboardInterrupt) -> int:
    return 128 + (interrupt.number if isinstance(interrupt, StopAtOnce) else signal.SIGINT)


def end_like(number: int, message: str) -> NoReturn:
    """Ends a script as this signal would have, after training has been saved."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt(message)
    print(message, file=sys.stderr)
    raise SystemExit(128 + number)


def stop_reason(number: int) -> str:
    return f"stopped by {signal.Signals(number).name}"


@contextmanager
def caught_signals(
    react: Callable[[int], None] = lambda number: None, overdue: Callable[[], None] = lambda: None
) -> Iterator[list[int]]:
    """Yields the list of requests to stop, in order, and calls `react` with each. Works in the main thread only.

    One request can arrive several times: a terminal sends Ctrl-C to its whole process group, `timeout` does the same
    with SIGTERM, and `forward_signal` sends it again. Only the same signal after `ONE_REQUEST` is a second request.
    `overdue` is called in the main thread every second from `OVERDUE_SECONDS` after the first request on.
    """
    received: list[int] = []
    last: dict[int, float] = {}
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    reminder = _Reminder()

    def handle(number: int, frame: Any) -> None:
        if reminder.sent:
            reminder.sent = False
            overdue()
            return
        now = time.monotonic()
        if number in last and now - last[number] < ONE_REQUEST:
            return
        last[number] = now
        received.append(number)
        if received.count(number) > len(caught):
            original = signal.SIGINT if signal.SIGINT in signal.sigpending() else number  # see `forward_signal`
            caught.append(original)
            reminder.requested.set()
            react(original)

    previous = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield caught
    finally:
        reminder.end()
        for number, handler in previous.items():
            signal.signal(number, handler)


class _Reminder:
    """A thread that sends the main thread SIGTERM after a request, which also interrupts a blocked system call.

    It is started beforehand, because a signal handler must not start threads.
    """

    def __init__(self) -> None:
        self.sent, self.requested, self._ended = False, threading.Event(), threading.Event()
        self._main = threading.get_ident()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self.requested.set()
        self._thread.join()

    def _run(self) -> None:
        self.requested.wait()
        seconds = OVERDUE_SECONDS
        while not self._ended.wait(seconds):
            self.sent, seconds = True, 1.0
            signal.pthread_kill(self._main, signal.SIGTERM)


def hidden_from_ctrl_c() -> AbstractContextManager[None]:
    """Blocks SIGINT in processes started here. See `forward_signal`."""
    return hidden_from(signal.SIGINT)


def forward_signal(number: int, process: int) -> None:
    """Stops a process that blocks SIGINT: sends SIGTERM, after a SIGINT that stays pending as the reason."""
    if number == signal.SIGINT:
        os.kill(process, signal.SIGINT)
    os.kill(process, signal.SIGTERM)
