"""The rows of replay rings in a checkpoint: files of 10,000 rows each, written once and then only linked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from rl_training.runtime.checkpoints.format import (
    CheckpointError,
    Segments,
    Span,
    StoredFile,
    check_name,
    damaged,
    serialize_tensors,
    write_file,
)
from rl_training.runtime.checkpoints.storage import Checkpoint
from rl_training.types import Batch

SEGMENT_ROWS = 10_000


class Ring(Protocol):
    """Rows numbered from the first ever added, of which the newest are alive; none changes once it is added.

    `restore` is given rows in their order, and passes over those that are too old to be alive.
    """

    @property
    def added(self) -> int: ...
    def __len__(self) -> int: ...
    def rows(self, start: int, stop: int) -> Batch: ...
    def restore(self, rows: Batch, start: int) -> None: ...


class ReplaySegments:
    """Saves and restores rings by name. Keep one for the length of a run: it knows which segments are on the disk.

    `<name>-000003.safetensors` holds rows 30,000 to 39,999, as far as they were alive when it was written.
    A segment that the checkpoint last saved or restored holds already is hard-linked, so that a checkpoint costs
    its new rows only, yet stands alone when others are removed. Damage to a linked file is damage to all that share it.
    """

    def __init__(self, rings: Mapping[str, Ring]) -> None:
        for name in rings:
            check_name("a replay ring", name)
        self._rings = dict(rings)
        self._previous: Checkpoint | None = None

    def write(self, directory: Path) -> tuple[dict[str, StoredFile], dict[str, Segments]]:
        """Put all living rows into `directory`; returns what the manifest must say of them."""
        files: dict[str, StoredFile] = {}
        rings: dict[str, Segments] = {name: {} for name in self._rings}
        for name, ring in self._rings.items():
            for span in _segment_spans(ring.added - len(ring), ring.added):
                file = f"{name}-{span[0] // SEGMENT_ROWS:06d}.safetensors"
                files[file], rings[name][file] = self._link(directory, name, file, span) or (
                    write_file(directory / file, serialize_tensors(ring.rows(*span))),
                    span,
                )
        return files, rings

    def remember(self, checkpoint: Checkpoint) -> None:
        """The rings stand as in this checkpoint; the next one may link to its segments."""
        self._previous = checkpoint

    def forget(self) -> None:
        """Rows have changed: the next checkpoint must write them all anew."""
        self._previous = None

    def restore(self, checkpoint: Checkpoint) -> None:
        """Fill the rings with the rows that were alive."""
        for name, ring in self._rings.items():
            if name not in checkpoint.manifest.replay:
                raise CheckpointError(f"checkpoint {checkpoint.path} has no replay rows of {name!r}; start a new run")
            segments = checkpoint.manifest.replay[name]
            for file, (start, stop) in sorted(segments.items(), key=lambda segment: segment[1]):
                rows = checkpoint.tensors(file)
                if any(column.shape[:1] != (stop - start,) for column in rows.values()):
                    raise damaged(checkpoint.path, f"{file} does not hold the rows {start} to {stop}")
                ring.restore(rows, start)
        self.remember(checkpoint)

    def _link(self, directory: Path, name: str, file: str, needed: Span) -> tuple[StoredFile, Span] | None:
        """Link the previous checkpoint's segment, if it holds the rows needed; its checksum stays what it was."""
        if self._previous is None:
            return None
        span = self._previous.manifest.replay.get(name, {}).get(file)
        if span is None or span[0] > needed[0] or span[1] != needed[1]:
            return None
        stored, source = self._previous.manifest.files[file], self._previous.path / file
        try:
            if source.stat().st_size != stored.size:
                return None
            os.link(source, directory / file)
        except OSError:  # removed, on another disk, or on one that has no links: it is written anew
            return None
        return stored, span


def _segment_spans(start: int, stop: int) -> Iterator[Span]:
    while start < stop:
        end = min(stop, (start // SEGMENT_ROWS + 1) * SEGMENT_ROWS)
        yield start, end
        start = end
