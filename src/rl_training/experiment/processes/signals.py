"""Handles SIGTERM and Ctrl-C (SIGINT) as requests to save and stop."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from rl_training.processes import hidden_from

ONE_REQUEST = 1.0  # the same signal within this many seconds belongs to the same request


def stop_reason(number: int) -> str:
    return f"stopped by {signal.Signals(number).name}"


@contextmanager
def caught_signals(react: Callable[[int], None] = lambda number: None) -> Iterator[list[int]]:
    """Yields the list of requests to stop, in order, and calls `react` with each. Works in the main thread only.

    One request can arrive several times: a terminal sends Ctrl-C to its whole process group, `timeout` does the same
    with SIGTERM, and `forward_signal` sends it again. Only the same signal after `ONE_REQUEST` is a second request.
    """
    received: list[int] = []
    last: dict[int, float] = {}
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def handle(number: int, frame: Any) -> None:
        now = time.monotonic()
        if number in last and now - last[number] < ONE_REQUEST:
            return
        last[number] = now
        received.append(number)
        if received.count(number) > len(caught):
            original = signal.SIGINT if signal.SIGINT in signal.sigpending() else number  # see `forward_signal`
            caught.append(original)
            react(original)

    previous = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield caught
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def hidden_from_ctrl_c() -> AbstractContextManager[None]:
    """Blocks SIGINT in processes started here. See `forward_signal`."""
    return hidden_from(signal.SIGINT)


def forward_signal(number: int, process: int) -> None:
    """Stops a process that blocks SIGINT: sends SIGTERM, after a SIGINT that stays pending as the reason."""
    if number == signal.SIGINT:
        os.kill(process, signal.SIGINT)
    os.kill(process, signal.SIGTERM)
