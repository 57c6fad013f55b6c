"""Runs commands on a Ray cluster, or on a Ray of this machine that is started for them."""

import secrets
import time
from pathlib import Path

from rl_training.experiment.executors.base import Command, Executor, ExecutorOptions, Handle
from rl_training.experiment.executors.ray.connection import RayConnection
from rl_training.experiment.executors.ray.handle import RayHandle, output_of
from rl_training.experiment.executors.ray.resources import resources_of, unused_gpus
from rl_training.experiment.executors.ray.worker import TOKEN
from rl_training.files import write_atomically
from rl_training.messages import print_warning

MOST_JOBS = 1000  # submitted at a time; Ray queues what the nodes cannot hold
CLOSE_SECONDS = 10.0


class RayExecutor(Executor):
    """Submits each command as an actor that starts its process; see `worker`."""

    remote = True
    one_folder = True  # the one that is copied if a node does not share it

    def __init__(self, options: ExecutorOptions) -> None:
        self.limit = options.jobs or MOST_JOBS
        self._resources = resources_of(options)
        self._connection = RayConnection(options.address)
        self._token = secrets.token_hex(16)
        self._marked: set[Path] = set()
        self._handles: list[RayHandle] = []
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        if not self._resources.fit_somewhere():
            raise ValueError(f"{self._resources.refusal()}; ask for less with --cpus, --gpus or --memory")
        if gpus := unused_gpus(self._resources):
            print_warning(f"the Ray cluster has {gpus} GPUs, and jobs use none; give each some with --gpus")

    @property
    def parallel(self) -> int:
        return max(min(self.limit, self._resources.capacity()), 1)

    def submit(self, command: Command) -> Handle:
        self._mark(output_of(command)[0])
        handle = RayHandle(command, self._resources, self._token)
        self._handles.append(handle)
        return handle

    def close(self) -> None:
        for handle in self._handles:
            if handle.poll() is None:
                handle.kill()
        deadline = time.monotonic() + CLOSE_SECONDS
        for handle in self._handles:
            handle.thread.join(max(deadline - time.monotonic(), 0))
        self._connection.close()
        for root in self._marked:
            (root / TOKEN).unlink(missing_ok=True)

    def _mark(self, root: Path) -> None:
        """Writes the token by which a node recognises the folder."""
        if root not in self._marked:
            self._marked.add(root)
            write_atomically(root / TOKEN, self._token)
