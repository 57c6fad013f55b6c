"""Runs works as processes of this machine."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping

from rl_training.experiment.executors.base import LOG, OUTPUT, Executor, Handle, Work
from rl_training.experiment.processes.signals import forward_signal, hidden_from_ctrl_c
from rl_training.processes import starter_variable

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class LocalProcess(Handle):
    """A process that is killed when this one ends."""

    def __init__(self, work: Work, variables: Mapping[str, str]) -> None:
        environment = {**os.environ, **starter_variable(), **ONE_THREAD, **variables}
        work.folder.mkdir(parents=True, exist_ok=True)
        with (work.folder / OUTPUT).open("wb") as output, (work.folder / LOG).open("ab") as log, hidden_from_ctrl_c():
            self._process = subprocess.Popen(
                [sys.executable, "-m", *work.arguments],
                stdin=subprocess.DEVNULL, stdout=output, stderr=log, env=environment, pass_fds=work.keep_open,
            )  # fmt: skip

    def poll(self) -> int | None:
        return self._process.poll()

    def stop(self, number: int) -> None:
        if self.poll() is None:
            forward_signal(number, self._process.pid)

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._process.kill()


class LocalExecutor(Executor):
    """`limit` processes at a time."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit or os.cpu_count() or 1

    def submit(self, work: Work) -> Handle:
        return LocalProcess(work, {})
