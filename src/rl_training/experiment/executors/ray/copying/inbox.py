"""Receives the files of another machine and publishes them without half-written checkpoints."""

import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from rl_training.experiment.executors.ray.copying.snapshots import (
    PIECE,
    TOP_LEVEL,
    CopiedFile,
    CopyError,
    Group,
    checkpoints_below,
    link_or_copy,
    sha256_of,
)
from rl_training.files import fsync_directory, publish_directory, remove_directory, temporary_directory

INCOMING = ".incoming"


class Inbox:
    """Writes what another machine sends: below `root/below` alone, and with `top_level` small files in `root` too."""

    def __init__(self, root: Path, below: str, *, top_level: bool = False) -> None:
        self.root, self.below, self.top_level = root, below, top_level
        self._incoming = root / below / INCOMING
        self._linked: dict[str, Path] = {}  # files of the present group that are here, by the path of their copy
        self.close()  # what a copy that was cut off has left

    def wanted(self, group: Group) -> list[CopiedFile]:
        """The files of a group that have to be sent; hard links to files that are here need not."""
        found = {file.path: self._here(file) for file in group.files}
        self._linked = {path: here for path, here in found.items() if here is not None}
        return [file for file in group.files if file.path not in self._linked]

    def write(self, path: str, offset: int, data: bytes) -> None:
        self._checked(path)
        partial = self._partial(path)
        partial.parent.mkdir(parents=True, exist_ok=True)
        if len(data) > PIECE or offset != (partial.stat().st_size if offset else 0):
            raise CopyError(f"the pieces of {path} came in the wrong order or size")
        with partial.open("ab" if offset else "wb") as file:
            file.write(data)

    def publish(self, group: Group) -> None:
        """Verifies the files of a group and moves them to their places."""
        targets = {file.path: self._checked(file.path) for file in group.files}
        for file in group.files:
            if file.path not in self._linked:
                self._verify(file)
        if group.checkpoint is None:
            for path, target in targets.items():
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(self._partial(path), target)
                fsync_directory(target.parent)
            return
        directory = self._checked(group.checkpoint)
        if any(target.parent != directory for target in targets.values()):
            raise CopyError(f"a file of the checkpoint {group.checkpoint} lies elsewhere")
        temporary = temporary_directory(directory.parent)
        temporary.mkdir(parents=True)
        for file in group.files:
            place = temporary / Path(file.path).name
            if file.path in self._linked:
                link_or_copy(self._linked[file.path], place)
            else:
                os.replace(self._partial(file.path), place)
        fsync_directory(temporary)
        publish_directory(temporary, directory)

    def keep_only(self, checkpoints: Sequence[str]) -> None:
        """Removes checkpoints that the other machine has removed, if it has another one of the same run."""
        kept = {self._checked(path) for path in checkpoints}
        runs = {path.parent for path in kept}
        for path in [*checkpoints_below(self.root / self.below)]:
            if path not in kept and path.parent in runs:
                remove_directory(path)

    def close(self) -> None:
        shutil.rmtree(self._incoming, ignore_errors=True)

    def _checked(self, path: str) -> Path:
        """The path to write, which must be relative, below the folder of the command, and lead through no link."""
        parts = PurePosixPath(path).parts
        inside = not self.below or (parts[:1] == (self.below,) and len(parts) > 1)
        beside = self.top_level and len(parts) == 1 and Path(path).suffix in TOP_LEVEL
        hidden = any(part == "/" or part.startswith(".") for part in parts)  # `..` too
        if not parts or hidden or "\\" in path or "\0" in path or not (inside or beside):
            raise CopyError(f"a copy must not write {path!r}")
        target = self.root / path
        for each in [target, *target.parents[: len(parts) - 1]]:
            if each.is_symlink():
                raise CopyError(f"a copy must not write through the link {each}")
        return target

    def _here(self, file: CopiedFile) -> Path | None:
        """The file to which this one is a hard link, if it is here and unchanged."""
        if file.link is None:
            return None
        here = self._checked(file.link)
        same = here.is_file() and here.stat().st_size == file.size and sha256_of(here, file.size) == file.sha256
        return here if same else None

    def _verify(self, file: CopiedFile) -> None:
        partial = self._partial(file.path)
        if not partial.exists() or partial.stat().st_size != file.size or sha256_of(partial, file.size) != file.sha256:
            raise CopyError(f"the copy of {file.path} does not match its checksum")
        with partial.open("rb") as written:
            os.fsync(written.fileno())

    def _partial(self, path: str) -> Path:
        return self._incoming / hashlib.sha256(path.encode()).hexdigest()
