"""Files to copy to another machine, in groups that are published at once.

An `Outbox` takes a snapshot of what is new in a folder, and an `Inbox` on the other machine receives it in pieces. A
checkpoint is published after all of its files have arrived; any other file replaces the old one in one step. A crash
on either side leaves what a crash of the training itself could leave, so the same command continues.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

PIECE = 8 * 2**20  # bytes
MANIFEST = "manifest.json"
TOP_LEVEL = (".yaml", ".yml", ".json")  # files beside the folder that a command may read, such as bench.yaml

Stamp: TypeAlias = tuple[int, int, int]  # inode, size and time of change


class CopyError(Exception):
    """A copy does not match its checksum, or a machine asked for a path that it must not write."""


class CopiedFile(NamedTuple):
    path: str  # relative, with "/"
    size: int
    sha256: str
    link: str | None = None  # path of a file, copied earlier, to which this one is a hard link


class Group(NamedTuple):
    """Files that are published at once: those of a checkpoint, or one file."""

    checkpoint: str | None
    files: list[CopiedFile]


class Snapshot(NamedTuple):
    groups: list[Group]  # in the order in which to publish them
    checkpoints: list[str]  # all that exist, new or not

    def to_json(self) -> str:
        return json.dumps(self)

    @classmethod
    def from_json(cls, text: str) -> Snapshot:
        groups, checkpoints = json.loads(text)
        return cls([group_of(group) for group in groups], list(checkpoints))


def group_of(values: Sequence[Any]) -> Group:
    checkpoint, files = values
    return Group(checkpoint, [CopiedFile(*file) for file in files])


def copy_groups(
    snapshot: Snapshot, read: Callable[[str, int], bytes], wanted: Callable[[Group], Sequence[CopiedFile]],
    write: Callable[[str, int, bytes], None], publish: Callable[[Group], None],
) -> None:  # fmt: skip
    """Copies piece by piece; either side may be on another machine."""
    for group in snapshot.groups:
        for file in wanted(group):
            for offset in range(0, max(file.size, 1), PIECE):
                write(file.path, offset, read(file.path, offset))
        publish(group)


def plain_files(folder: Path) -> Iterator[Path]:
    """The regular files below a folder, without hidden ones and checkpoints."""
    for directory, folders, names in os.walk(folder):
        here = Path(directory)
        folders[:] = [name for name in folders if not name.startswith(".") and not is_checkpoint(here / name)]
        for name in names:
            if not name.startswith(".") and (here / name).is_file() and not (here / name).is_symlink():
                yield here / name


def checkpoints_below(folder: Path) -> Iterator[Path]:
    """The complete checkpoints below a folder, without hidden ones and links."""
    for manifest in sorted(folder.rglob(f"checkpoints/step_*/{MANIFEST}")):
        path = manifest.parent
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if is_checkpoint(path) and not hidden and not path.is_symlink():
            yield path


def is_checkpoint(path: Path) -> bool:
    return path.parent.name == "checkpoints" and re.fullmatch(r"step_[0-9]+(\.old)?", path.name) is not None


def stamp_of(path: Path) -> Stamp:
    facts = path.stat()
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # the file system has no hard links
        shutil.copy2(source, target)


def sha256_of(path: Path, size: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while size > 0 and (block := file.read(min(size, 1 << 20))):
            digest.update(block)
            size -= len(block)
    return digest.hexdigest()
