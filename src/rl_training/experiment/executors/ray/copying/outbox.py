"""Takes snapshots of a folder in which a process is working."""

import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

from rl_training.experiment.executors.ray.copying.snapshots import (
    MANIFEST,
    PIECE,
    TOP_LEVEL,
    CopiedFile,
    Group,
    Snapshot,
    Stamp,
    checkpoints_below,
    link_or_copy,
    plain_files,
    sha256_of,
    stamp_of,
)

SMALL = 2**20  # larger files are copied with checkpoints and at the end only
OUTGOING = ".outgoing"
# They claim that checkpoints exist, so they are read before the checkpoints and published after them.
CLAIMS = ("run.json", "result.json")


class Outbox:
    """Reads new and changed files of `root/below`, and with `top_level` small files of `root` too."""

    def __init__(self, root: Path, below: str, *, top_level: bool = False) -> None:
        self.root, self.folder, self.top_level = root, root / below, top_level
        self._sent: dict[str, Stamp] = {}
        self._staged: dict[str, tuple[Path, Stamp]] = {}

    def snapshot(self, *, checkpoints: bool = True) -> Snapshot:
        """Holds the present files by hard links until `done`; without `checkpoints`, small files only.

        Files that grow are held at their present size. Hidden files, links and unfinished checkpoints are left out.
        """
        self._clear()
        paths = [self._relative(path) for path in plain_files(self.folder)]
        claims = self._groups([path for path in paths if Path(path).name in CLAIMS]) if checkpoints else []
        present = [self._relative(path) for path in checkpoints_below(self.folder)] if checkpoints else []
        saved = [group for path in present if (group := self._checkpoint(path)) is not None]
        others = [self._relative(path) for path in plain_files(self.folder) if path.name not in CLAIMS]
        if self.top_level and self.folder != self.root:
            others += [path.name for path in self.root.iterdir() if path.suffix in TOP_LEVEL and path.is_file()]
        plain = self._groups(others if checkpoints else [path for path in others if self._size(path) <= SMALL])
        return Snapshot([*plain, *saved, *claims], present)

    def read(self, path: str, offset: int) -> bytes:
        """At most `PIECE` bytes of a file of the last snapshot."""
        staged, (_, size, _) = self._staged[path]
        with staged.open("rb") as file:
            file.seek(offset)
            return file.read(min(PIECE, size - offset))

    def done(self) -> None:
        """Records that the last snapshot was copied."""
        self._sent |= {path: stamp for path, (_, stamp) in self._staged.items()}
        self._clear()

    def _clear(self) -> None:
        self._staged = {}
        shutil.rmtree(self.folder / OUTGOING, ignore_errors=True)

    def _relative(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def _size(self, path: str) -> int:
        try:
            return (self.root / path).stat().st_size
        except FileNotFoundError:
            return 0

    def _groups(self, paths: Sequence[str]) -> list[Group]:
        copies = [copy for path in paths if (copy := self._stage(path)) is not None]
        return [Group(None, [copy]) for copy in copies]

    def _checkpoint(self, path: str) -> Group | None:
        """The files of a checkpoint that is new and was not replaced or removed meanwhile, the manifest last."""
        directory = self.root / path
        try:
            before = (directory / MANIFEST).read_bytes()
            names = [*sorted(entry.name for entry in os.scandir(directory) if entry.name != MANIFEST), MANIFEST]
            if self._sent.get(f"{path}/{MANIFEST}") == stamp_of(directory / MANIFEST):
                return None
            copies = [self._stage(f"{path}/{name}", again=True) for name in names]
        except FileNotFoundError:
            return None
        staged = self._staged.get(f"{path}/{MANIFEST}")
        if None in copies or staged is None or staged[0].read_bytes() != before:
            for name in names:  # not recorded as copied
                self._staged.pop(f"{path}/{name}", None)
            return None
        return Group(path, [copy for copy in copies if copy is not None])

    def _stage(self, path: str, *, again: bool = False) -> CopiedFile | None:
        """Holds a file; returns None if it has gone or was replaced meanwhile, or was copied before and not `again`."""
        source, target = self.root / path, self.folder / OUTGOING / uuid.uuid4().hex
        try:
            stamp = stamp_of(source)
            if not again and self._sent.get(path) == stamp:
                return None
            target.parent.mkdir(exist_ok=True)
            link_or_copy(source, target)
            if stamp_of(source)[0] != stamp[0]:
                return None
        except FileNotFoundError:
            return None
        self._staged[path] = target, stamp
        link = next((sent for sent, each in self._sent.items() if again and each == stamp and sent != path), None)
        return CopiedFile(path, stamp[1], sha256_of(target, stamp[1]), link)
