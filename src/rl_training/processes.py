"""Child processes: their signals, how they ended, and their end when the parent process is gone."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import connection, resource_tracker
from multiprocessing.process import BaseProcess

POLL_SECONDS = 1.0
ORPHAN_SECONDS = 3.0  # time to end in order after the parent process has ended


def describe_exit(code: int) -> str:
    """Describes an exit code of `subprocess` or `multiprocessing`, which is negative after a signal."""
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


@contextmanager
def hidden_from(*signals: signal.Signals) -> Iterator[None]:
    """Blocks signals in processes started here: during their start they would end them."""
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)


def start_hidden(process: BaseProcess, *signals: signal.Signals) -> None:
    with hidden_from(*signals):
        resource_tracker.ensure_running()  # unblocks SIGINT and SIGTERM when it starts the tracker
    with hidden_from(*signals):
        process.start()


def end_with_parent() -> None:
    """Kills this process if it has not ended `ORPHAN_SECONDS` after its parent.

    A thread waits for the end of the parent, so this works while the main thread is blocked.
    """
    parent, starter = multiprocessing.parent_process(), os.getppid()
    if parent is None:
        return

    def watch() -> None:
        # Other children of the parent may keep the sentinel open, so the parent's id is compared too.
        while not connection.wait([parent.sentinel], POLL_SECONDS) and os.getppid() == starter:
            pass
        threading.Event().wait(ORPHAN_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
