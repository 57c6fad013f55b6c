"""Tables (CSV, Parquet): named columns, read in batches of rows."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from rl_training.data.readers.names import choose_names, matching_columns, other_names
from rl_training.data.readers.rows import StoredColumns, complete_transitions, fill_columns, join_columns
from rl_training.types import Array, Arrays, EnvSpec

Batches: TypeAlias = "Iterator[Arrays]"


def read_table(
    path: Path, stored: Sequence[str], numeric: Sequence[str], batches: Callable[[list[str], str | None], Batches],
    given: Mapping[str, str] | None, *, rows: int, spec: EnvSpec | None = None,
) -> StoredColumns:  # fmt: skip
    """Reads a table of at most `rows` rows; `batches` takes column names and the name of the episode id column."""
    names = choose_names(stored, given, path)
    chosen = {name: matching_columns(pattern, stored) for name, pattern in names.items()}
    ids = chosen["episodes"][0] if "episodes" in chosen else None
    chosen |= {name: [name] for name in other_names(stored, names, given) if name in numeric}
    wanted = list(dict.fromkeys(column for group in chosen.values() for column in group))
    joined = (
        {name: join_columns([batch[column] for column in group]) for name, group in chosen.items()}
        for batch in batches(wanted, ids)
    )
    return complete_transitions(fill_columns(joined, rows), names, path, spec=spec)


def episode_encoder() -> Callable[[Iterable[object]], Array]:
    """Returns a function that replaces episode ids of any type by integers."""
    codes: dict[object, int] = {}
    return lambda ids: np.array([codes.setdefault(each, len(codes)) for each in ids], np.int64)
