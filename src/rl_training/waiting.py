"""Shows what a run waits for: after a second on a terminal, after ten elsewhere."""

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

TERMINAL_SECONDS, LINE_SECONDS = 1.0, 10.0  # shorter waits are not shown
Show = Callable[[str], None]


def show_line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def waiting_for(what: str, show: Show | None) -> Iterator[None]:
    """Shows `what` if the block takes long. None for `show`: never."""
    if show is None:
        yield
        return
    seconds = TERMINAL_SECONDS if sys.stderr.isatty() else LINE_SECONDS
    timer = threading.Timer(seconds, show, [f"{what} …"])
    timer.daemon = True  # must not keep the process alive
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def announce_first_call(owner: Any, method: str, what: str, show: Show) -> None:
    """Shows `what` while the first call of a method waits; later calls go to the method itself."""
    function = getattr(owner, method)
    waits = iter([show])  # used once, even if another wrapper around this one keeps it in place

    def first(*arguments: Any, **options: Any) -> Any:
        if vars(owner).get(method) is first:
            delattr(owner, method)
        with waiting_for(what, next(waits, None)):
            return function(*arguments, **options)

    setattr(owner, method, first)


@contextmanager
def garbage_collection_off() -> Iterator[None]:
    """Runs a block without garbage collection, which takes a tenth of the time of importing PyTorch."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
