"""Runs commands as processes of this machine."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping

from rl_training.experiment.executors.base import LOG, OUTPUT, Command, Executor, Handle
from rl_training.experiment.executors.capacity import cores
from rl_training.experiment.executors.devices import VISIBLE
from rl_training.experiment.processes.signals import forward_signal, hidden_from_ctrl_c
from rl_training.processes import ONE_THREAD, starter_variable


class LocalProcess(Handle):
    """A process that is killed when this one ends."""

    def __init__(self, command: Command, variables: Mapping[str, str]) -> None:
        environment = {**os.environ, **starter_variable(), **ONE_THREAD, **variables}
        command.folder.mkdir(parents=True, exist_ok=True)
        files = command.folder / OUTPUT, command.folder / LOG
        with files[0].open("wb") as output, files[1].open("ab") as log, hidden_from_ctrl_c():
            self._process = subprocess.Popen(
                [sys.executable, "-m", *command.arguments],
                stdin=subprocess.DEVNULL, stdout=output, stderr=log, env=environment, pass_fds=command.keep_open,
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
    """Runs `limit` processes at a time. With `slots`, each process sees one GPU; `slots` limits those on each GPU."""

    def __init__(self, limit: int | None = None, slots: Mapping[str, int] | None = None) -> None:
        self._slots, self._processes = dict(slots or {}), list[tuple[str, LocalProcess]]()
        self.limit = min(limit or sys.maxsize, sum(self._slots.values()) or limit or cores())

    def submit(self, command: Command) -> Handle:
        if not self._slots:
            return LocalProcess(command, {})
        self._processes = [(device, process) for device, process in self._processes if process.poll() is None]
        device = self._free_device()
        process = LocalProcess(command, device_variables(device))
        self._processes.append((device, process))
        return process

    def _free_device(self) -> str:
        """The GPU with the most free slots."""
        used = Counter(device for device, _ in self._processes)
        device = max(self._slots, key=lambda name: self._slots[name] - used[name])
        if used[device] >= self._slots[device]:
            raise RuntimeError(f"more than {self.limit} jobs at a time")
        return device


def device_variables(device: str) -> dict[str, str]:
    """Variables by which a process sees one GPU. A number is that of nvidia-smi, or an entry that was set before."""
    order = {} if VISIBLE in os.environ else {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return {VISIBLE: device, **order}
