"""Copies the files of a command between the driver and a node of a Ray cluster that does not share its folder."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rl_training.experiment.executors.base import LOG, OUTPUT
from rl_training.experiment.executors.ray.copying.inbox import Inbox
from rl_training.experiment.executors.ray.copying.outbox import Outbox
from rl_training.experiment.executors.ray.copying.snapshots import CopyError, Snapshot, copy_groups
from rl_training.files import write_atomically

CONFIGS = (".yaml", ".yml")
COPY_SECONDS = 10.0  # between copies of small files, which show the progress


class Copies:
    """Sends the files of a command to its actor, and copies new ones back. `between` is called before each piece."""

    def __init__(self, actor: Any, folder: Path, root: Path, below: str, between: Callable[[], None]) -> None:
        self._actor, self._folder, self._root, self._below, self._between = actor, folder, root, below, between
        self._checkpoints, self._time = "", time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        self._log_size = (folder / LOG).stat().st_size if (folder / LOG).exists() else 0
        self._inbox = Inbox(root, below)

    def send(self, arguments: Sequence[str]) -> None:
        """Sends the folder of the command, small files beside it, and config files among the arguments."""
        import ray

        for place, word in enumerate(arguments):
            if Path(word).suffix in CONFIGS and Path(word).is_file():
                ray.get(self._actor.write_config.remote(place, Path(word).name, Path(word).read_bytes()))
        outbox = Outbox(self._root, self._below, top_level=True)
        copy_groups(
            outbox.snapshot(), outbox.read, lambda group: group.files,
            lambda *piece: ray.get(self._actor.write.remote(*piece)),
            lambda group: ray.get(self._actor.publish.remote(json.dumps(group))),
        )  # fmt: skip
        outbox.done()

    def fetch(self, checkpoints: str, *, ended: bool) -> None:
        """Copies everything at a new checkpoint and at the end, and small files at times."""
        changed = checkpoints != self._checkpoints
        if not ended and not changed and time.monotonic() - self._time < COPY_SECONDS:
            return
        try:
            self._copy(checkpoints=changed or ended)
            self._checkpoints = checkpoints
            self._inbox.close()
        except CopyError:  # a file was cut during the copy; it is copied next time
            if ended:
                raise
        self._time = time.monotonic()

    def _copy(self, *, checkpoints: bool) -> None:
        import ray

        output, log = ray.get(self._actor.printed.remote())
        write_atomically(self._folder / OUTPUT, output)
        with (self._folder / LOG).open("ab") as file:
            file.truncate(self._log_size)
            file.write(log)
        snapshot = Snapshot.from_json(ray.get(self._actor.snapshot.remote(checkpoints)))
        copy_groups(snapshot, self._read, self._inbox.wanted, self._inbox.write, self._inbox.publish)
        if checkpoints:
            self._inbox.keep_only(snapshot.checkpoints)
        ray.get(self._actor.done.remote())

    def _read(self, path: str, offset: int) -> bytes:
        import ray

        self._between()
        piece: bytes = ray.get(self._actor.read.remote(path, offset))
        return piece
