"""Rows as files keep them, made into transitions that never lead from one episode into another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rl_training.data.datasets.validation import find_breaks, require_equal_lengths
from rl_training.types import Array, Arrays, EnvSpec

MADE = ("next_obs", "dones", "truncated")  # from the other columns, where the file has them not


@dataclass(frozen=True)
class StoredColumns:
    """The transitions of a file under our names, Box actions in the file's units; nothing is judged yet."""

    columns: Arrays
    names: dict[str, str]  # ours, and the file's for the same
    rows: int  # in the file; some of them may have no known successor, and are left out
    spec: EnvSpec | None = field(default=None)  # where the file keeps one

    def name_in_file(self, ours: str) -> str | None:
        """What the file calls this column; None where it was made from the others."""
        return self.names.get(ours, None if ours in MADE else ours)


def complete_transitions(
    columns: Arrays, names: Mapping[str, str], source: object, *, spec: EnvSpec | None = None
) -> StoredColumns:
    """The columns with next_obs, dones and truncated set, less the rows whose next observation is not known."""
    columns = dict(columns)
    require_equal_lengths(columns)
    rows = len(columns["obs"])
    flags = {ours: columns.pop(ours, np.zeros(rows, bool)) for ours in ("dones", "truncated")}
    dones, cut = (_flags(names.get(ours, ours), column, source) for ours, column in flags.items())
    episodes = columns.pop("episodes", None)
    if episodes is not None:
        cut[:-1] |= (episodes[1:] != episodes[:-1]) & ~dones[:-1]
    told = "truncated" in names or episodes is not None  # the file says itself where time limits are
    if "next_obs" in columns:
        _require_same_shape(columns)
        if not told:  # then only a jump between rows can tell
            cut[:-1] |= find_breaks(columns["obs"], columns["next_obs"]) & ~dones[:-1]
        complete = {**columns, "dones": dones, "truncated": cut}
    elif told or "dones" not in names:
        complete = _derive_next_obs(columns, dones, cut, source)
    else:
        ends = names["dones"]
        raise ValueError(
            f"{source} has neither next_obs nor truncated, so whether {ends!r} marks terminal states or time limits "
            f"cannot be seen; say --columns truncated={ends} if all are terminal states, --columns truncated={ends} "
            "--columns dones= if all are time limits, or --columns truncated=NAME if another column marks those"
        )
    return StoredColumns(complete, dict(names), rows, spec)


def join_rows(parts: Sequence[StoredColumns], sources: Sequence[object]) -> StoredColumns:
    """The rows of several files, one after another; an episode ends where its file does. Empties the parts."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    for part, source in zip(parts, sources, strict=True):
        if part.columns.keys() != first.columns.keys() or part.spec != first.spec:
            raise ValueError(
                f"{source} has the columns {sorted(part.columns)} and spaces {part.spec}, "
                f"{sources[0]} has {sorted(first.columns)} and {first.spec}: read them one by one"
            )
        part.columns["truncated"][-1] |= not part.columns["dones"][-1]
    columns = {name: _joined(name, [part.columns.pop(name) for part in parts]) for name in list(first.columns)}
    return StoredColumns(columns, first.names, sum(part.rows for part in parts), first.spec)


def side_by_side(columns: Sequence[Array]) -> Array:
    """One column from several, [rows, numbers]."""
    if len(columns) == 1:
        return columns[0]
    return np.concatenate([column.reshape(len(column), -1).astype(np.float32) for column in columns], axis=1)


def compact_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What numbers of this kind are kept as: floats in 32 bits, whole numbers as they are."""
    return np.dtype(np.float32) if dtype.kind == "f" else dtype


def require_numbers(name: str, dtype: np.dtype[Any], source: object) -> None:
    if dtype.kind not in "fiub":
        what = "Python objects or text of varying length" if dtype.kind == "O" else str(dtype)
        raise TypeError(f"{source}: column {name!r} must hold numbers, got {what}")


def _joined(name: str, parts: Sequence[Array]) -> Array:
    shapes = {part.shape[1:] for part in parts}
    if len(shapes) > 1:
        raise ValueError(f"column {name!r} has rows of different shapes in different files: {sorted(shapes)}")
    return np.concatenate(parts)


def _flags(name: str, column: Array, source: object) -> Array:
    values = column.reshape(-1)
    flags = values != 0
    wrong = flags & (values != 1)
    if wrong.any():
        first = int(wrong.argmax())
        raise ValueError(f"{source}: column {name!r} must hold 0 or 1, row {first} holds {values[first]:g}")
    return flags


def _derive_next_obs(columns: Arrays, dones: Array, cut: Array, source: object) -> Arrays:
    known = dones | ~cut
    known[-1] = dones[-1]
    kept = np.flatnonzero(known)
    if not len(kept):
        raise ValueError(
            f"{source}: none of the {len(dones)} rows has a known successor: no next_obs, and every episode is cut"
        )
    truncated = np.zeros_like(cut)
    truncated[:-1] = cut[1:] & ~dones[1:] & ~dones[:-1]  # the row before one left out is now its episode's last
    truncated |= cut & dones
    # What follows a terminal row is another episode; no value is taken there, but a dynamics model would learn the
    # jump. Where death led is not in the file, so the row keeps its own observation.
    next_obs = columns["obs"][kept + ~dones[kept]]
    complete = {**columns, "dones": dones, "truncated": truncated}
    return {**{name: _keep(column, kept) for name, column in complete.items()}, "next_obs": next_obs}


def _keep(column: Array, kept: Array) -> Array:
    """These rows moved to the front, in place: a second copy of a large column is what memory is short of."""
    if len(kept) < len(column):
        for start in range(0, len(kept), 4096):
            rows = kept[start : start + 4096]
            column[start : start + len(rows)] = column[rows]
    return column[: len(kept)]


def _require_same_shape(columns: Arrays) -> None:
    obs, next_obs = columns["obs"], columns["next_obs"]
    if obs.shape != next_obs.shape:
        raise ValueError(f"obs are {obs.shape} but next_obs are {next_obs.shape}")
