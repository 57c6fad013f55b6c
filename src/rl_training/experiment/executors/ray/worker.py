"""The actor that runs one command on a node of a Ray cluster.

If the node does not share the folder of the driver, files are copied.

Its methods return at once, and take strings, numbers and bytes alone. They run in the main thread of the Ray worker,
which the process of the command does not outlive.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

import rl_training
from rl_training.experiment.executors.base import LOG, OUTPUT
from rl_training.experiment.executors.ray.copying.inbox import Inbox
from rl_training.experiment.executors.ray.copying.outbox import Outbox
from rl_training.experiment.executors.ray.copying.snapshots import PIECE, checkpoints_below, group_of
from rl_training.experiment.processes.signals import forward_signal, hidden_from_ctrl_c
from rl_training.processes import ONE_THREAD, starter_variable

OUTPUT_OPTION = "--output"  # the argument after it is the folder with the results
TOKEN = ".ray-token"  # a file in that folder, by which a node recognises it
PREFIX, LOCK = "rl-training-work-", ".lock"  # of folders on nodes that do not share it


class RayWorker:
    """Runs one command: `prepare`, then `write` and `publish` if files have to be copied, then `start` and `poll`."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._root, self._below, self._working_directory = Path(), "", ""
        self._copied: tuple[Path, IO[bytes]] | None = None  # a folder on this node, and its lock
        self._configs: dict[int, Path] = {}

    def prepare(self, working_directory: str, root: str, below: str, token: str) -> tuple[str, str, bool]:
        """Returns the name of this node, its version of this package, and whether it sees the folder of the driver."""
        self._working_directory = working_directory if os.path.isdir(working_directory) else ""
        self._root, self._below = Path(root), below
        with suppress(OSError):
            if (self._root / TOKEN).read_text() == token:
                return socket.gethostname(), rl_training.__version__, True
        self._copied = _new_folder()
        self._root = self._copied[0] / self._root.name
        (self._root / below).mkdir(parents=True)
        self._inbox, self._outbox = Inbox(self._root, below, top_level=True), Outbox(self._root, below)
        return socket.gethostname(), rl_training.__version__, False

    def write(self, path: str, offset: int, data: bytes) -> None:
        self._inbox.write(path, offset, data)

    def publish(self, group: str) -> None:
        self._inbox.publish(group_of(json.loads(group)))

    def write_config(self, place: int, name: str, data: bytes) -> None:
        """Stores the config file that is the argument at this place."""
        assert self._copied is not None
        self._configs[place] = self._copied[0] / f"{place}" / Path(name).name
        self._configs[place].parent.mkdir()
        self._configs[place].write_bytes(data)

    def start(self, folder: str, *arguments: str) -> None:
        """Starts `python -m arguments...` with its output in a folder; if files are copied, with that of this node."""
        words = [str(self._configs.get(place, word)) for place, word in enumerate(arguments)]
        if self._copied is not None or not self._working_directory:
            for place in (place for place, word in enumerate(words[:-1]) if word == OUTPUT_OPTION):
                words[place + 1] = str(self._root)
        self._folder = Path(folder) if self._copied is None else self._copied[0]
        self._folder.mkdir(parents=True, exist_ok=True)
        variables = _variables()
        with (self._folder / OUTPUT).open("wb") as output, (self._folder / LOG).open("ab") as log, hidden_from_ctrl_c():
            self._process = subprocess.Popen(
                [sys.executable, "-m", *words], stdin=subprocess.DEVNULL, stdout=output, stderr=log,
                env={**variables, **starter_variable(), **ONE_THREAD}, cwd=self._working_directory or self._root,
            )  # fmt: skip

    def poll(self) -> tuple[int | None, str]:
        """Returns the exit code, or None while the process runs, and the checkpoints that could be copied."""
        assert self._process is not None
        code = self._process.poll()
        found = checkpoints_below(self._root / self._below) if self._copied is not None else ()
        return code, " ".join(path.relative_to(self._root).as_posix() for path in found)

    def stop(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            forward_signal(number, self._process.pid)

    def snapshot(self, checkpoints: bool) -> str:
        return self._outbox.snapshot(checkpoints=checkpoints).to_json()

    def read(self, path: str, offset: int) -> bytes:
        return self._outbox.read(path, offset)

    def done(self) -> None:
        self._outbox.done()

    def printed(self) -> tuple[bytes, bytes]:
        """Returns the end of the standard output and of the log."""
        return _end_of(self._folder / OUTPUT), _end_of(self._folder / LOG)

    def remove(self) -> None:
        """Deletes the folder of this node."""
        if self._copied is not None:
            shutil.rmtree(self._copied[0], ignore_errors=True)


def _variables() -> dict[str, str]:
    """The environment of this worker with the GPUs that Ray has reserved. Without any, Ray would leave all visible."""
    import ray

    hidden = {} if ray.get_gpu_ids() else {"CUDA_VISIBLE_DEVICES": ""}
    return {**{name: value for name, value in os.environ.items() if not name.startswith("RAY_")}, **hidden}


def _new_folder() -> tuple[Path, IO[bytes]]:
    """A folder on this node with a lock that ends with this process. Deletes the folders of dead workers."""
    import fcntl  # not on Windows

    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError), (folder / LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    new = Path(tempfile.mkdtemp(prefix=PREFIX))
    held = (new / LOCK).open("wb")
    fcntl.flock(held, fcntl.LOCK_EX)
    return new, held


def _end_of(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-min(PIECE // 2, file.seek(0, os.SEEK_END)), os.SEEK_END)
        return file.read()
