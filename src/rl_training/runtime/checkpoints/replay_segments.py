"""Saves replay buffers in files of 10,000 rows; a checkpoint hard-links those of the checkpoint before the last."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from rl_training.runtime.checkpoints.format import (
    Segments,
    Span,
    StoredFile,
    UnreadableCheckpointError,
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

    `<name>-000003.safetensors` holds rows 30,000 to 39,999, as far as they are stored.

    Segments are hard-linked from the checkpoint before the last, never from the last. Two checkpoints in a row share
    no file, so damage to one file never affects both. Every transition is written twice: a checkpoint writes the rows
    added since the checkpoint before the last, and the oldest segment, which shrinks. The first checkpoint after the
    start or a resume, and the one after it, write all rows that the process has not written before. On disk, the
    buffer takes twice its size. With a single checkpoint kept (`keep_checkpoints: 1`), the last one is linked.
    """

    def __init__(self, replays: Mapping[str, SavedReplay]) -> None:
        for name in replays:
            check_name("replay buffer", name)
        self._replays = dict(replays)
        self._recent: list[Checkpoint] = []  # the last two

    def write(self, directory: Path, target: Path) -> tuple[dict[str, StoredFile], dict[str, Segments]]:
        """Writes all rows to `directory`, which becomes `target`; returns the manifest entries `files` and `replay`."""
        files: dict[str, StoredFile] = {}
        segments: dict[str, Segments] = {name: {} for name in self._replays}
        source = self._source(target)
        for name, replay in self._replays.items():
            for span in _segment_spans(replay.added - len(replay), replay.added):
                file = f"{name}-{span[0] // SEGMENT_ROWS:06d}.safetensors"
                files[file], segments[name][file] = _link(source, directory, name, file, span) or (
                    write_file(directory / file, serialize_tensors(replay.rows(*span))),
                    span,
                )
        return files, segments

    def remember(self, checkpoint: Checkpoint) -> None:
        """Lets the checkpoint after the next link to the segments of this one."""
        others = [each for each in self._recent if each.path != checkpoint.path]
        self._recent = [*others, checkpoint][-2:]

    def forget(self) -> None:
        """Makes the next checkpoints write all rows, because stored rows have changed."""
        self._recent = []

    def restore(self, checkpoint: Checkpoint) -> None:
        for name, replay in self._replays.items():
            if name not in checkpoint.manifest.replay:
                raise UnreadableCheckpointError(
                    f"checkpoint {checkpoint.path} has no rows of the replay buffer {name!r}; start a new run"
                )
            segments = checkpoint.manifest.replay[name]
            for file, (start, stop) in sorted(segments.items(), key=lambda segment: segment[1]):
                rows = checkpoint.tensors(file)
                if any(column.shape[:1] != (stop - start,) for column in rows.values()):
                    raise damaged(checkpoint.path, f"{file} does not hold the rows {start} to {stop}")
                replay.restore(rows, start)
        self.remember(checkpoint)

    def require_complete(self, checkpoint: Checkpoint) -> None:
        """Raises ValueError if a buffer, larger than the one that was saved, has slots for rows that were not saved."""
        for name, replay in self._replays.items():
            saved = replay.added - min((start for start, _ in checkpoint.manifest.replay[name].values()), default=0)
            if saved < len(replay):
                raise ValueError(f"a replay buffer with {len(replay):,} rows is needed, but only {saved:,} were saved")

    def _source(self, target: Path) -> Checkpoint | None:
        """Returns the checkpoint to link: the one to replace, else the one before the last, else the only one kept."""
        if self._recent and self._recent[-1].path == target:
            return self._recent[-1]
        if len(self._recent) < 2:
            return None
        return next((each for each in self._recent if each.path.is_dir()), None)


def _link(
    source: Checkpoint | None, directory: Path, name: str, file: str, span: Span
) -> tuple[StoredFile, Span] | None:
    """Links the segment of an earlier checkpoint if it holds exactly these rows."""
    if source is None or source.manifest.replay.get(name, {}).get(file) != span:
        return None
    stored = source.manifest.files[file]
    try:
        if (source.path / file).stat().st_size != stored.size:
            return None
        os.link(source.path / file, directory / file)
    except OSError:  # removed, on another file system, or links are not supported: write it again
        return None
    return stored, span


def _segment_spans(start: int, stop: int) -> Iterator[Span]:
    while start < stop:
        end = min(stop, (start // SEGMENT_ROWS + 1) * SEGMENT_ROWS)
        yield start, end
        start = end
