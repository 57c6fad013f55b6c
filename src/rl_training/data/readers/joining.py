"""Several files as one: their columns, episodes, labels, and the order of their columns."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import fields
from typing import TypeAlias

import numpy as np

from rl_training.data.datasets.trajectories import renumbered
from rl_training.data.readers.episodes import TRUNCATED_TERMINALS, shared_ids
from rl_training.data.readers.plan import STANDARD
from rl_training.data.readers.rows import Labels, LeftOut, StoredColumns, incomplete_notes
from rl_training.types import Array, EnvSpec

Order: TypeAlias = "dict[str, tuple[str, ...]]"  # obs and actions, and the columns that they are made of


def join_files(parts: Sequence[StoredColumns], sources: Sequence[object]) -> StoredColumns:
    """Concatenates files; episodes end at the end of their file. Empties `parts` to save memory."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    notes = _drop_incomplete(parts)
    _require_same_columns(parts, sources)
    require_same_spaces([part.spec for part in parts], sources, "load these files separately")
    for part in parts:
        part.columns["truncated"][-1] |= not part.columns["dones"][-1]
    lengths, labels = [len(part.columns["obs"]) for part in parts], _joined_labels(parts, notes)
    trajectories = _joined_trajectories(parts)
    columns = {name: np.concatenate([part.columns.pop(name) for part in parts]) for name in list(first.columns)}
    before = np.cumsum([0, *(part.rows for part in parts)])
    positions = [
        start + (np.arange(length) if part.positions is None else part.positions)
        for part, length, start in zip(parts, lengths, before, strict=False)
    ]
    left_out = [
        LeftOut(f"{each.reason} ({source})", each.rows)
        for part, source in zip(parts, sources, strict=True)
        for each in part.left_out
    ]
    return StoredColumns(
        columns, first.names, int(before[-1]), first.spec, labels, tuple(left_out), np.concatenate(positions),
        trajectories, tuple(zip(sources, before.tolist(), strict=False)),
    )  # fmt: skip


def _require_same_columns(parts: Sequence[StoredColumns], sources: Sequence[object]) -> None:
    first = parts[0].columns
    for part, source in zip(parts, sources, strict=True):
        if part.columns.keys() != first.keys():
            differing = sorted(part.columns.keys() ^ first.keys())
            options = shlex.join(word for name in differing for word in ("--columns", f"{name}="))
            ignore = "" if {*differing} & {*STANDARD} else f", or use {options} to ignore what only one of them has"
            raise ValueError(
                f"{source} has the columns {sorted(part.columns)}, but {sources[0]} has {sorted(first)}; load these "
                f"files separately{ignore}"
            )
        for name, column in part.columns.items():
            if column.shape[1:] != (other := first[name].shape)[1:]:
                raise ValueError(
                    f"{source} has {name} of shape {column.shape}, but {sources[0]} has {other}; load these files "
                    "separately"
                )


def require_same_spaces(specs: Sequence[EnvSpec | None], sources: Sequence[object], remedy: str) -> None:
    """Raises ValueError with the first field in which the spaces of a source differ from those of the first source."""
    for spec, source in zip(specs, sources, strict=True):
        if spec == (first := specs[0]):
            continue
        if spec is None or first is None:
            with_spec, without = (source, sources[0]) if first is None else (sources[0], source)
            raise ValueError(f"{with_spec} has a description of its spaces, but {without} has none; {remedy}")
        names = [each.name for each in fields(spec) if each.compare]
        name = next(name for name in names if getattr(spec, name) != getattr(first, name))
        here, there = getattr(spec, name), getattr(first, name)
        raise ValueError(f"{source} has {name} {here}, but {sources[0]} has {there}; {remedy}")


def _joined_trajectories(parts: Sequence[StoredColumns]) -> Array | None:
    if all(part.trajectories is None for part in parts):
        return None
    flags = [part.columns["dones"] | part.columns["truncated"] for part in parts]
    found = zip((part.trajectories for part in parts), flags, strict=True)
    return renumbered([np.cumsum(ends) - ends if own is None else own for own, ends in found])


def _drop_incomplete(parts: Sequence[StoredColumns]) -> tuple[str, ...]:
    """Drops columns that one of the files lacks because of missing values from all files, and returns a note."""
    needed = {name for part in parts for name in (part.labels.time, *part.labels.times, *part.labels.text_ids)}
    incomplete = [name for name in _incomplete(parts) if name not in needed]
    dropped = [name for name in incomplete if [part.columns.pop(name) for part in parts if name in part.columns]]
    return incomplete_notes(dropped, " in one of the files")


def _incomplete(parts: Sequence[StoredColumns]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in parts for name in part.labels.incomplete))


def has_actions(part: StoredColumns) -> bool:
    actions = part.columns["actions"]
    return actions.dtype.kind != "f" or not bool(np.isnan(actions).all())


def _joined_labels(parts: Sequence[StoredColumns], notes: Sequence[str]) -> Labels:
    with_actions = [part for part in parts if has_actions(part)] or parts
    flagged = [part.labels.integer_actions or part.columns["actions"].dtype.kind in "iu" for part in with_actions]
    warnings = dict.fromkeys(each for part in parts for each in part.labels.warnings)
    has_limits = any(part.labels.has_limits for part in parts)
    return parts[0].labels._replace(
        integer_actions=all(flagged),
        notes=tuple(dict.fromkeys([*(note for part in parts for note in part.labels.notes), *notes])),
        incomplete=_incomplete(parts),
        warnings=(
            *(each for each in warnings if not (has_limits and each[0] == TRUNCATED_TERMINALS)),
            *shared_ids([part.labels.episodes for part in parts]),
        ),
        has_limits=has_limits,
    )


def order_in_file(stored: StoredColumns) -> Order:
    """The columns of a table, or those of the table that a file was written from."""
    return order_of(stored.spec) if stored.spec else {name: stored.labels.names.get(name, ()) for name in order_of()}


def order_of(spec: EnvSpec | None = None) -> Order:
    return {"obs": (spec and spec.obs_names) or (), "actions": (spec and spec.action_columns) or ()}


def require_same_order(orders: Sequence[Order], sources: Sequence[object]) -> None:
    """Raises ValueError if one of several sources has the columns of the first in another order."""
    for order, source in zip(orders, sources, strict=True):
        for name, columns in order.items():
            first = orders[0][name]
            if columns != first and sorted(columns) == sorted(first):
                raise ValueError(
                    f"{source} has the {name} {','.join(columns)}, but {sources[0]} has {','.join(first)}; name them "
                    f"in one order with --columns {name}={','.join(first)}"
                )
