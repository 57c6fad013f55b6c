"""Child processes: their signals, how they ended, and their end when the parent process is gone."""

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import connection, resource_tracker
from multiprocessing.process import BaseProcess

POLL_SECONDS = 0.5
ORPHAN_SECONDS = 2.0  # time to end normally after the parent process has ended
# Its number, 3, is also the seconds after which the kernel ends a blocked interpreter. Windows does not have it.
ORPHANED = getattr(signal, "SIGQUIT", signal.SIGTERM)
STARTER = "RL_TRAINING_STARTER"  # environment variable: a process id
PR_SET_PDEATHSIG = 1
REPEATED = 93  # exit code of a process that would repeat its parent's script
NEEDS_GUARD = (
    "every new process imports the script that starts it, "
    "so put the script's own code below a line if __name__ == '__main__':"
)
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # for processes that share the cores
_job = threading.Event()  # set in a process that a job runner has started


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def shares_the_machine() -> bool:
    """Whether this process is one of several jobs, of a benchmark, a search or seeds."""
    return _job.is_set() or multiprocessing.parent_process() is not None


def describe_exit(code: int) -> str:
    """Describes an exit code of `subprocess` or `multiprocessing`, which is negative after a signal."""
    if code == REPEATED:
        return f"could not start: {NEEDS_GUARD}"
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


@contextmanager
def hidden_from(*signals: signal.Signals) -> Iterator[None]:
    """Blocks signals in processes started in the block, which the signals would end during their start."""
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)


def start_hidden(process: BaseProcess, *signals: signal.Signals) -> None:
    end_if_repeated()
    with hidden_from(*signals):
        resource_tracker.ensure_running()  # unblocks SIGINT and SIGTERM when it starts the tracker
    with hidden_from(*signals):
        process.start()


def end_if_repeated() -> None:
    """Ends a new process that still imports its parent's script, which would train a second time."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        print(NEEDS_GUARD, file=sys.stderr)  # the parent may be a pool of the user's, which reports nothing
        sys.exit(REPEATED)


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Processes started here use one thread for matrix products, unless an environment variable sets their number."""
    added = {name: value for name, value in ONE_THREAD.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def end_with_parent(*, signalled: bool = True) -> None:
    """Kills this process if it has not ended `ORPHAN_SECONDS` after its parent, which used `multiprocessing`.

    A thread waits for the end of the parent, so this works while the main thread is blocked. If C code holds the
    interpreter lock, the kernel ends the process a second later (Linux). Pass `signalled=False` if the thread that
    started this process may end before the parent does: the kernel watches that thread.
    """
    parent = multiprocessing.parent_process()
    if parent is None or parent.pid is None:
        return
    if signalled and sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
        # The handler is alarm(number of the signal), which needs no interpreter; SIGALRM then ends this process.
        libc.signal(ORPHANED, ctypes.cast(libc.alarm, ctypes.c_void_p))
        _signal_after(parent.pid, ORPHANED)
    _watch(parent.pid, [parent.sentinel], ORPHAN_SECONDS)


def kill_with_starter() -> None:
    """Kills this process at the end of the process that started it with `starter_variable()`, if one did."""
    starter = os.environ.pop(STARTER, None)  # not for the children of this process
    if starter is not None:
        _job.set()
        if sys.platform == "linux":
            _signal_after(int(starter), signal.SIGKILL)
        _watch(int(starter), [], 0.0)


def starter_variable() -> dict[str, str]:
    """The environment variable for a child that calls `kill_with_starter`."""
    return {STARTER: str(os.getpid())}


def _signal_after(parent: int, number: int) -> None:
    """Asks the kernel to send this process a signal at the end of its parent."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it ended before
        os.kill(os.getpid(), number)


def _watch(parent: int, sentinels: list[int], seconds: float) -> None:
    """Starts a thread that kills this process, with its children, some seconds after the end of its parent."""

    def watch() -> None:
        # Other children of the parent may keep the sentinel open, so the parent's id is compared too.
        while not connection.wait(sentinels, POLL_SECONDS) and os.getppid() == parent:
            pass
        threading.Event().wait(seconds)
        try:
            for child in multiprocessing.active_children():  # hanging ones would wait as long again
                child.kill()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
