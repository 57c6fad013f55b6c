"""Stored rows, and their completion to transitions that never cross from one episode into another."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from rl_training.data.datasets.validation import find_breaks, require_equal_lengths, require_flags
from rl_training.data.readers.names import choose_names, matching_columns, other_names
from rl_training.types import Array, Arrays, EnvSpec

DERIVED = ("next_obs", "dones", "truncated")  # computed from other columns if the file lacks them
Batches: TypeAlias = "Iterator[Arrays]"


@dataclass(frozen=True)
class StoredColumns:
    """Unvalidated transitions of a file, with Box actions in the file's units."""

    columns: Arrays
    names: dict[str, str]  # column name, and its name in the file
    rows: int  # in the file; rows without a known next observation are dropped from `columns`
    spec: EnvSpec | None = None  # if the file has one

    def name_in_file(self, name: str) -> str | None:
        """A column's name in the file, or None if it was derived from other columns."""
        return self.names.get(name, None if name in DERIVED else name)


def complete_transitions(
    columns: Arrays, names: Mapping[str, str], source: object, *, spec: EnvSpec | None = None
) -> StoredColumns:
    """Adds missing next_obs, dones and truncated, and drops rows without a known next observation."""
    columns = dict(columns)
    require_equal_lengths(columns)
    rows = len(columns["obs"])
    flags = {name: columns.pop(name, np.zeros(rows, bool)) for name in ("dones", "truncated")}
    dones, truncated = (_flags(names.get(name, name), column, source) for name, column in flags.items())
    episodes = columns.pop("episodes", None)
    if episodes is not None:
        truncated[:-1] |= (episodes[1:] != episodes[:-1]) & ~dones[:-1]
    marked = "truncated" in names or episodes is not None  # the file marks truncated episodes
    if "next_obs" in columns:
        obs, next_obs = columns["obs"], columns["next_obs"]
        if obs.shape != next_obs.shape:
            raise ValueError(f"obs have shape {obs.shape} but next_obs have {next_obs.shape}")
        if not marked:
            truncated[:-1] |= find_breaks(obs, next_obs) & ~dones[:-1]
        complete = {**columns, "dones": dones, "truncated": truncated}
    elif marked or "dones" not in names:
        complete = _derive_next_obs(columns, dones, truncated, source)
    else:
        ends = names["dones"]
        raise ValueError(
            f"{source} has neither next_obs nor truncated, so {ends!r} may mark terminal states or time limits; use "
            f"--columns truncated={ends} if all are terminal states, --columns truncated={ends} --columns dones= if "
            "all are time limits, or --columns truncated=NAME if another column marks time limits"
        )
    return StoredColumns(complete, dict(names), rows, spec)


def join_files(parts: Sequence[StoredColumns], sources: Sequence[object]) -> StoredColumns:
    """Concatenates files; episodes end at the end of their file. Empties `parts` to save memory."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    for part, source in zip(parts, sources, strict=True):
        if part.columns.keys() != first.columns.keys() or part.spec != first.spec:
            raise ValueError(
                f"{source} has the columns {sorted(part.columns)} and spaces {part.spec}, but "
                f"{sources[0]} has {sorted(first.columns)} and {first.spec}; load these files separately"
            )
        part.columns["truncated"][-1] |= not part.columns["dones"][-1]
    columns = {name: _concatenate(name, [part.columns.pop(name) for part in parts]) for name in list(first.columns)}
    return StoredColumns(columns, first.names, sum(part.rows for part in parts), first.spec)


def fill_columns(batches: Iterable[Arrays], rows: int) -> Arrays:
    """Concatenates batches of at most `rows` rows into preallocated columns, so that none is held twice."""
    columns, start = dict[str, Array](), 0
    for batch in batches:
        stop = start + len(next(iter(batch.values())))
        for name, part in batch.items():
            if name not in columns:
                columns[name] = np.empty((rows, *part.shape[1:]), compact_dtype(part.dtype))
            elif part.dtype.kind == "f" and columns[name].dtype.kind != "f":
                columns[name] = columns[name].astype(np.float32)  # integers so far
            columns[name][start:stop] = part
        start = stop
    return {name: column[:start] for name, column in columns.items()}


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


def join_columns(columns: Sequence[Array]) -> Array:
    """Joins columns to one of shape [rows, dimensions]."""
    if len(columns) == 1:
        return columns[0]
    return np.concatenate([column.reshape(len(column), -1).astype(np.float32) for column in columns], axis=1)


def compact_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """float32 for floats; other dtypes are kept."""
    return np.dtype(np.float32) if dtype.kind == "f" else dtype


def require_numbers(name: str, dtype: np.dtype[Any], source: object) -> np.dtype[Any]:
    """Returns the dtype to store a column of numbers in, and raises TypeError for anything else."""
    if dtype.kind not in "fiub":
        kind = "Python objects or text of varying length" if dtype.kind == "O" else str(dtype)
        raise TypeError(f"{source}: column {name!r} must hold numbers, got {kind}")
    return compact_dtype(dtype)


def _concatenate(name: str, parts: Sequence[Array]) -> Array:
    if len(shapes := {part.shape[1:] for part in parts}) > 1:
        raise ValueError(f"column {name!r} has rows of different shapes in different files: {sorted(shapes)}")
    return np.concatenate(parts)


def _flags(name: str, column: Array, source: object) -> Array:
    values = column.reshape(-1)
    require_flags({name: values}, f"{source}: ")
    return values != 0


def _derive_next_obs(columns: Arrays, dones: Array, ended: Array, source: object) -> Arrays:
    """Takes next_obs from the next row; `ended` flags the last rows of truncated episodes, which are dropped."""
    known = dones | ~ended
    known[-1] = dones[-1]
    if not len(kept := np.flatnonzero(known)):
        raise ValueError(
            f"{source}: none of the {len(dones)} rows has a next observation: next_obs is missing, and every episode "
            "is truncated after one row"
        )
    truncated = np.zeros_like(ended)
    truncated[:-1] = ended[1:] & ~dones[1:] & ~dones[:-1]  # the row before a dropped one now ends its episode
    truncated |= ended & dones
    # The row after a terminal one belongs to another episode, and a dynamics model would learn that jump. The terminal
    # observation is not in the file, so next_obs repeats obs there.
    next_obs = columns["obs"][kept + ~dones[kept]]
    complete = {**columns, "dones": dones, "truncated": truncated}
    return {**{name: _keep_rows(column, kept) for name, column in complete.items()}, "next_obs": next_obs}


def _keep_rows(column: Array, kept: Array) -> Array:
    """Moves rows to the front in place, without a second copy of the column."""
    if len(kept) < len(column):
        for start in range(0, len(kept), 4096):
            rows = kept[start : start + 4096]
            column[start : start + len(rows)] = column[rows]
    return column[: len(kept)]
