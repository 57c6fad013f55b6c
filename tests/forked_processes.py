"""Processes of a job runner as forks of the test process: they need not import torch again, which takes seconds."""

from __future__ import annotations

import io
import os
import runpy
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn


class ForkedProcess:
    """Stands in for `subprocess.Popen` of `python -m module arguments`."""

    def __init__(
        self, command: Sequence[str], *, stdout: Any, stderr: Any, env: Mapping[str, str], **files: Any
    ) -> None:
        self.returncode: int | None = None
        output = (stdout.fileno(), stderr.fileno())  # an error after the fork would let it run the other tests too
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            run_module(command[2:], output, env)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start_command(*words: str, **options: Any) -> subprocess.Popen[str]:
    """Starts `rl-training` with these arguments; `options` are those of `subprocess.Popen`."""
    before = _open_files()

    def run_instead() -> None:
        for file in _open_files() - before - {0, 1, 2}:
            os.close(file)  # `Popen` waits until its own pipe is closed
        run_module(["rl_training.cli", *words], (1, 2), os.environ.copy())

    return subprocess.Popen(["rl-training"], preexec_fn=run_instead, text=True, **options)


def _open_files() -> set[int]:
    folder = "/proc/self/fd"
    # The file that lists them is closed again.
    return {int(name) for name in os.listdir(folder) if os.path.exists(f"{folder}/{name}")}


def run_module(words: Sequence[str], output: Sequence[int], env: Mapping[str, str]) -> NoReturn:
    """Runs a module as `python -m` does in a new process: output, signals and environment are not the parent's."""
    code = 1
    try:
        for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), *output)):
            os.dup2(file, number)
        sys.stdout, sys.stderr = (io.TextIOWrapper(io.FileIO(number, "w", closefd=False)) for number in (1, 2))
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.clear()
        os.environ.update(env)
        sys.argv = list(words)
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)  # also where output cannot be written
