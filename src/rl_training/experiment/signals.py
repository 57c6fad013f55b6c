"""SIGTERM and Ctrl-C, handled for as long as something runs that must end well."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

ONE_REQUEST = 1.0  # seconds in which the same signal is told once more, and not asked a second time


def asked_by(number: int) -> str:
    """Why a run stopped that was asked to."""
    return f"asked to stop by {signal.Signals(number).name}"


@contextmanager
def caught_signals(react: Callable[[int], None] = lambda number: None) -> Iterator[list[int]]:
    """The signals that asked to stop, in order; `react` is told each. Only the main thread can catch any.

    A terminal sends Ctrl-C to every process of its group, as `timeout` does SIGTERM, and a process that is told passes
    it on to those it started (`pass_on`): all that is one request. Only the same signal, a while later, is a second.
    """
    came: list[int] = []
    last: dict[int, float] = {}
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def note(number: int, frame: Any) -> None:
        now = time.monotonic()
        if number in last and now - last[number] < ONE_REQUEST:
            return
        last[number] = now
        came.append(number)
        if came.count(number) > len(caught):
            asked = signal.SIGINT if signal.SIGINT in signal.sigpending() else number  # see `pass_on`
            caught.append(asked)
            react(asked)

    previous = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield caught
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def hidden_from_ctrl_c() -> Iterator[None]:
    """A process that is started in here holds SIGINT back, which would end it while it still starts: see `pass_on`."""
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)


def pass_on(number: int, process: int) -> None:
    """Ask one that is hidden from Ctrl-C: SIGTERM reaches it, and a SIGINT that it holds back says who asked."""
    if number == signal.SIGINT:
        os.kill(process, signal.SIGINT)
    os.kill(process, signal.SIGTERM)
