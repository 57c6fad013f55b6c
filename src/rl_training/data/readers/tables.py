"""What tables have in common: named columns, batch after batch of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from rl_training.data.readers.names import choose_names, members, other_names
from rl_training.data.readers.rows import (
    StoredColumns,
    compact_dtype,
    complete_transitions,
    side_by_side,
)
from rl_training.types import Array, Arrays, EnvSpec

Batches: TypeAlias = "Iterator[Arrays]"


def read_table(
    path: Path,
    stored: Sequence[str],
    numeric: Sequence[str],
    batches: Callable[[list[str], str | None], Batches],
    given: Mapping[str, str] | None,
    *,
    most: int,
    spec: EnvSpec | None = None,
) -> StoredColumns:
    """The table's transitions; `batches` reads the columns named, of which one may hold the episodes' ids."""
    names = choose_names(stored, given, path)
    chosen = {ours: members(theirs, stored) for ours, theirs in names.items()}
    ids = chosen["episodes"][0] if "episodes" in chosen else None
    chosen |= {name: [name] for name in other_names(stored, names, given) if name in numeric}
    wanted = list(dict.fromkeys(name for theirs in chosen.values() for name in theirs))

    def renamed() -> Batches:
        for batch in batches(wanted, ids):
            yield {ours: side_by_side([batch[name] for name in theirs]) for ours, theirs in chosen.items()}

    return complete_transitions(_filled(renamed(), most), names, path, spec=spec)


class EpisodeCodes:
    """Ids of any kind as numbers: equal where they are equal."""

    def __init__(self) -> None:
        self.codes: dict[object, int] = {}

    def __call__(self, ids: Iterable[object]) -> Array:
        return np.array([self.codes.setdefault(each, len(self.codes)) for each in ids], np.int64)


def _filled(batches: Batches, most: int) -> Arrays:
    """Every column in one array, written batch by batch so that none is ever held twice."""
    columns: Arrays = {}
    start = stop = 0
    for batch in batches:
        stop = start + len(next(iter(batch.values())))
        for name, part in batch.items():
            if name not in columns:
                columns[name] = np.empty((most, *part.shape[1:]), compact_dtype(part.dtype))
            elif part.dtype.kind == "f" and columns[name].dtype.kind != "f":
                columns[name] = columns[name].astype(np.float32)  # whole numbers so far
            columns[name][start:stop] = part
        start = stop
    return {name: column[:stop] for name, column in columns.items()}
