"""Saves replay buffers in files of 10,000 rows, which later checkpoints hard-link instead of writing again."""

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
from rl_training.runtime.checkpoints.reading import Checkpoint
from rl_training.types import Batch

SEGMENT_ROWS = 10_000


class SavedReplay(Protocol):
    """A replay buffer that can be saved. Rows are numbered from the first one added and never change.

    The newest `len` rows are stored. `restore` is called in row order and ignores rows that were overwritten.
    """

    @property
    def added(self) -> int: ...
    def __len__(self) -> int: ...
    def rows(self, start: int, stop: int) -> Batch: ...
    def restore(self, rows: Batch, start: int) -> None: ...


class ReplaySegments:
    """Saves and restores replay buffers by name. Keep one instance per run.

    `<name>-000003.safetensors` holds the rows from 30,000 to 39,999 that were stored when it was written.
    A segment that the last checkpoint already holds is hard-linked, so a checkpoint writes only its new rows.
    Other checkpoints can be deleted, but damage to a linked file affects every checkpoint that shares it.
    """

    def __init__(self, replays: Mapping[str, SavedReplay]) -> None:
        for name in replays:
            check_name("replay buffer", name)
        self._replays = dict(replays)
        self._previous: Checkpoint | None = None

    def write(self, directory: Path) -> tuple[dict[str, StoredFile], dict[str, Segments]]:
        """Writes all stored rows to `directory` and returns the manifest entries `files` and `replay`."""
        files: dict[str, StoredFile] = {}
        segments: dict[str, Segments] = {name: {} for name in self._replays}
        for name, replay in self._replays.items():
            for span in _segment_spans(replay.added - len(replay), replay.added):
                file = f"{name}-{span[0] // SEGMENT_ROWS:06d}.safetensors"
                files[file], segments[name][file] = self._link(directory, name, file, span) or (
                    write_file(directory / file, serialize_tensors(replay.rows(*span))),
                    span,
                )
        return files, segments

    def remember(self, checkpoint: Checkpoint) -> None:
        """Lets the next checkpoint link to the segments of this one."""
        self._previous = checkpoint

    def forget(self) -> None:
        """Makes the next checkpoint write all rows, because stored rows have changed."""
        self._previous = None

    def restore(self, checkpoint: Checkpoint) -> None:
        for name, replay in self._replays.items():
            if name not in checkpoint.manifest.replay:
                raise CheckpointError(
                    f"checkpoint {checkpoint.path} has no rows of the replay buffer {name!r}; start a new run"
                )
            segments = checkpoint.manifest.replay[name]
            for file, (start, stop) in sorted(segments.items(), key=lambda segment: segment[1]):
                rows = checkpoint.tensors(file)
                if any(column.shape[:1] != (stop - start,) for column in rows.values()):
                    raise damaged(checkpoint.path, f"{file} does not hold the rows {start} to {stop}")
                replay.restore(rows, start)
        self.remember(checkpoint)

    def _link(self, directory: Path, name: str, file: str, needed: Span) -> tuple[StoredFile, Span] | None:
        """Links the segment of the previous checkpoint if it holds the needed rows."""
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
        except OSError:  # removed, on another file system, or links are not supported: write it again
            return None
        return stored, span


def _segment_spans(start: int, stop: int) -> Iterator[Span]:
    while start < stop:
        end = min(stop, (start // SEGMENT_ROWS + 1) * SEGMENT_ROWS)
        yield start, end
        start = end
