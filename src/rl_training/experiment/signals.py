"""SIGTERM and Ctrl-C, handled for as long as something runs that must end well."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def caught_signals(react: Callable[[int], None] = lambda number: None) -> Iterator[list[int]]:
    """The signals that came, in order; `react` is told each. Only the main thread can catch any."""
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def note(number: int, frame: Any) -> None:
        caught.append(number)
        react(number)

    previous = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield caught
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
