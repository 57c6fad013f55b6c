"""Stored rows, and their completion to transitions that never cross from one episode into another."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rl_training.data.datasets.durations import DURATIONS, TIME, durations_of, require_same_durations
from rl_training.data.datasets.trajectories import STORED
from rl_training.data.datasets.validation import (
    LEARNED,
    find_breaks,
    find_not_finite,
    require_equal_lengths,
    require_flags,
)
from rl_training.data.readers.episodes import Warnings, lost_rewards, truncated_terminals
from rl_training.data.readers.names import ACTIONS
from rl_training.data.readers.options import Numbers
from rl_training.messages import many, rows_text
from rl_training.types import Array, Arrays, EnvSpec

DERIVED = ("next_obs", "dones", "truncated", DURATIONS)  # computed from other columns if the file lacks them
SHOWN = 100  # row numbers in JSON
FEW_FILES = 3  # with a sentence for each
NO_NEXT_OBS = "no next observation is known"


class LeftOut(NamedTuple):
    """Rows of the data that are not used."""

    reason: str
    rows: Array  # numbers of the rows in the file

    @property
    def sentence(self) -> str:
        count = "1 row is" if len(self.rows) == 1 else f"{len(self.rows):,} rows are"
        return f"{count} left out, because {self.reason}: {rows_text(self.rows)}"

    def to_json(self) -> dict[str, Any]:
        return {"reason": self.reason, "count": len(self.rows), "rows": self.rows[:SHOWN].tolist()}


def left_out_notes(left_out: Sequence[LeftOut]) -> list[str]:
    """One sentence for each reason and file, or for each reason if there are many files."""
    reasons = [each.reason.split(" (")[0] for each in left_out]  # without the file
    if len(left_out) <= FEW_FILES or len({*reasons}) == len(reasons):
        return [each.sentence for each in left_out]
    notes = []
    for reason in dict.fromkeys(reasons):
        counts = [len(each.rows) for each, own in zip(left_out, reasons, strict=True) if own == reason]
        notes.append(f"{many(sum(counts), 'row')} in {many(len(counts), 'file')} are left out, because {reason}")
    return notes


class Labels(NamedTuple):
    """How a table was read."""

    names: Mapping[str, tuple[str, ...]] = {}  # of the entries of a column, such as obs
    categories: Mapping[str, tuple[str, ...]] = {}  # values by column of the file, "actions" for the actions
    action_start: int | tuple[int, ...] = 0  # number of action 0 in the file, or of that of each choice
    action_numbers: Numbers | None = None  # of the file, if they may begin with 1
    integer_actions: bool = False  # integers of which some are missing, and which are therefore floats
    time: str = ""  # column that orders the rows
    times: tuple[str, ...] = ()  # columns of timestamps
    date_order: str = ""  # day or month first, where their text shows it
    notes: tuple[str, ...] = ()
    warnings: Warnings = ()
    episodes: Mapping[tuple[object, ...], bool] = {}  # ids in a table, and whether a row of each marks an end
    incomplete: tuple[str, ...] = ()  # other columns that are left out, because values are missing
    has_limits: bool = False  # rows that are marked as truncated and not as terminal
    text_ids: frozenset[str] = frozenset()  # columns of text that are kept as ids
    final_rows: bool = False  # terminal rows held the last observation of an episode


NO_LABELS = Labels()


@dataclass(frozen=True)
class StoredColumns:
    """Unvalidated transitions of a file, with Box actions in the file's units."""

    columns: Arrays
    names: dict[str, str]  # column name, and its name in the file
    rows: int  # in the file; rows without a known next observation are dropped from `columns`
    spec: EnvSpec | None = None  # if the file has one
    labels: Labels = NO_LABELS
    left_out: tuple[LeftOut, ...] = ()
    positions: Array | None = field(default=None, repr=False)  # row in the file of each row; None: the same
    trajectories: Array | None = field(default=None, repr=False)  # of each row, if they go on after terminal rows
    files: tuple[tuple[object, int], ...] = ()  # several files, and the number of rows before each

    def rows_in_file(self, chosen: Array) -> Array:
        """Row numbers in the file of the flagged rows."""
        rows = np.flatnonzero(chosen)
        return rows if self.positions is None else np.sort(self.positions[rows])

    @property
    def entry_names(self) -> dict[str, tuple[str, ...]]:
        return {"next_obs": self.labels.names.get("obs", ()), **self.labels.names}

    def place(self, row: int) -> str:
        """The number of a row in its file, with the file if there are several."""
        position = int(row if self.positions is None else self.positions[row])
        if not self.files:
            return str(position)
        source, start = next(each for each in reversed(self.files) if each[1] <= position)
        return f"{position - start} of {source}"

    def name_in_file(self, name: str) -> str | None:
        """A column's name in the file, or None if it was derived from other columns."""
        return self.names.get(name, None if name in DERIVED else name)


def complete_transitions(
    columns: Arrays, names: Mapping[str, str], source: object, *, spec: EnvSpec | None = None,
    labels: Labels = NO_LABELS, order: Array | None = None, time: str = "",
) -> StoredColumns:  # fmt: skip
    """Adds missing next_obs, dones and truncated, and drops rows without a known next observation.

    `order` has the row in the file of each row, if they were sorted. `time` is the column to add durations from.
    """
    columns = dict(columns)
    require_equal_lengths(columns)
    rows = len(columns["obs"])
    flags = {name: columns.pop(name, np.zeros(rows, bool)) for name in ("dones", "truncated")}
    dones, truncated = (read_flags(names.get(name, name), column, source, order) for name, column in flags.items())
    labels = _with_limits(labels, dones, truncated, names)
    episodes = columns.pop("episodes", None)
    trajectories = None if spec is None else columns.pop(STORED, None)
    if episodes is not None:
        truncated[:-1] |= (episodes[1:] != episodes[:-1]) & ~dones[:-1]
    marked = "truncated" in names or episodes is not None  # the file marks truncated episodes
    if "next_obs" in columns:
        labels = labels._replace(notes=(*labels.notes, *_fill_terminal(columns, dones)))
        if not marked:
            truncated[:-1] |= find_breaks(columns["obs"], columns["next_obs"]) & ~dones[:-1]
        timed = with_durations(columns, names, dones | truncated, source, time)
        complete, kept = {**timed, "dones": dones, "truncated": truncated}, np.arange(rows)
    elif marked or "dones" not in names:
        rewards = columns["rewards"].copy() if "rewards" in columns else None
        timed = with_durations(columns, names, dones | truncated, source, time)
        complete, kept = _derive_next_obs(timed, dones, truncated, source)
        labels = labels._replace(warnings=(*labels.warnings, *lost_rewards(rewards, kept)))
    else:
        raise ValueError(_ambiguous_ends(source, names["dones"]))
    if spec is not None and spec.obs_names is not None:  # a file written here
        categories = {name: tuple(values) for name, values in (spec.categories or {}).items()}
        labels = labels._replace(names={**labels.names, "obs": spec.obs_names}, categories=categories)
    lost = np.setdiff1d(np.arange(rows), kept, assume_unique=True)
    left_out = (LeftOut(NO_NEXT_OBS, lost if order is None else np.sort(order[lost])),) if len(lost) else ()
    positions = order if not len(lost) else kept if order is None else order[kept]
    trajectories = None if trajectories is None else trajectories[kept]
    return StoredColumns(complete, dict(names), rows, spec, labels, left_out, positions, trajectories)


def _with_limits(labels: Labels, dones: Array, truncated: Array, names: Mapping[str, str]) -> Labels:
    warnings = (*labels.warnings, *truncated_terminals(dones, truncated, names))
    return labels._replace(warnings=warnings, has_limits=bool((truncated & ~dones).any()))


def _ambiguous_ends(source: object, ends: str) -> str:
    return (
        f"{source} has neither next_obs nor truncated, so {ends!r} may mark terminal states or time limits; use "
        f"--columns truncated={ends} if all are terminal states, --columns truncated={ends} --columns dones= if "
        "all are time limits, or --columns truncated=NAME if another column marks time limits"
    )


def with_durations(columns: Arrays, names: Mapping[str, str], ends: Array, source: object, time: str = "") -> Arrays:
    """Adds durations before rows are dropped, from the time column that the user has named, or else from `time`.

    Durations of the file are kept: a split has those of the whole data.
    """
    if TIME not in names and not time:
        return columns
    found = durations_of(columns[TIME if TIME in names else time], ends)
    if TIME in names and DURATIONS in columns and DURATIONS not in names:
        require_same_durations(columns[DURATIONS], found, columns[TIME], ends, f"{source}: column {names[TIME]!r}")
    return {DURATIONS: found, **columns}


def drop_incomplete(columns: Arrays, extras: Iterable[str]) -> tuple[str, ...]:
    """Drops other columns with missing values, so that no row is lost for a column that nothing needs."""
    wrong = tuple(name for name in extras if columns[name].dtype.kind == "f" and np.isnan(columns[name]).any())
    for name in wrong:
        del columns[name]
    return wrong


def incomplete_notes(names: Collection[str], where: str = "") -> tuple[str, ...]:
    named = ", ".join(f"{name!r}" for name in names)
    return (f"left out, because values are missing{where}: {named} (keep with --columns NAME=NAME)",) if names else ()


def fill_columns(batches: Iterable[Arrays], rows: int) -> Arrays:
    """Concatenates batches of at most `rows` rows into preallocated columns, so that none is held twice."""
    columns, start = dict[str, Array](), 0
    for batch in batches:
        stop = start + len(next(iter(batch.values())))
        for name, part in batch.items():
            if name not in columns:
                columns[name] = np.empty((rows, *part.shape[1:]), stored_dtype(name, part.dtype))
            elif part.dtype.kind == "f" and columns[name].dtype.kind != "f":
                columns[name] = columns[name].astype(stored_dtype(name, part.dtype))  # integers so far
            columns[name][start:stop] = part
        start = stop
    return {name: column[:start] for name, column in columns.items()}


def join_columns(columns: Sequence[Array], name: str) -> Array:
    """Joins the columns of obs or actions to one of shape [rows, dimensions]; actions of integers stay integers."""
    if len(columns) == 1:
        return columns[0]
    is_whole = name in ACTIONS and all(column.dtype.kind in "iub" for column in columns)
    kind = np.int64 if is_whole else np.float32
    return np.concatenate([column.reshape(len(column), -1).astype(kind) for column in columns], axis=1)


def stored_dtype(name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """float32 for floats to learn from; other columns, such as the time, keep their dtype."""
    return np.dtype(np.float32) if dtype.kind == "f" and name in LEARNED else dtype


def require_numbers(name: str, dtype: np.dtype[Any], source: object) -> None:
    """Raises TypeError for a column that does not hold numbers."""
    if dtype.kind not in "fiub":
        kind = "Python objects or text of varying length" if dtype.kind == "O" else str(dtype)
        raise TypeError(f"{source}: column {name!r} must hold numbers, got {kind}")


def read_flags(name: str, column: Array, source: object, order: Array | None = None) -> Array:
    values = column.reshape(-1)
    if len(values) != len(column):
        raise ValueError(
            f"{source}: column {name!r} has shape {column.shape}, but every row is one step; reshape arrays of "
            "[episodes, steps, ...] to [rows, ...], and mark the last step of each"
        )
    require_flags({name: values if order is None else values[np.argsort(order)]}, f"{source}: ")  # rows of the file
    return values != 0


def _derive_next_obs(columns: Arrays, dones: Array, ended: Array, source: object) -> tuple[Arrays, Array]:
    """Takes next_obs from the next row; `ended` flags the last rows of truncated episodes, which are dropped.

    Also returns the rows that are kept.
    """
    known = dones | ~ended
    known[-1] = dones[-1]
    if not len(kept := np.flatnonzero(known)):
        raise ValueError(
            f"{source}: none of the {len(dones)} rows has a next observation: next_obs is missing, and every episode "
            "is truncated after one row; if rows are whole episodes, name a column of ones with --columns dones=NAME"
        )
    truncated = np.zeros_like(ended)
    truncated[:-1] = ended[1:] & ~dones[1:] & ~dones[:-1]  # the row before a dropped one now ends its episode
    truncated |= ended & dones
    # The row after a terminal one belongs to another episode, and a dynamics model would learn that jump. The terminal
    # observation is not in the file, so next_obs repeats obs there.
    next_obs = columns["obs"][kept + ~dones[kept]]
    complete = {**columns, "dones": dones, "truncated": truncated}
    return {**{name: keep_rows(column, kept) for name, column in complete.items()}, "next_obs": next_obs}, kept


def _fill_terminal(columns: Arrays, dones: Array) -> tuple[str, ...]:
    """Repeats obs as a missing next_obs of terminal rows, whose next value no target reads."""
    obs, next_obs = columns["obs"], columns["next_obs"]
    if obs.shape != next_obs.shape:
        raise ValueError(
            f"obs have shape {obs.shape} but next_obs have {next_obs.shape}; name their columns in one order with "
            "--columns obs=NAME,NAME --columns next_obs=NAME,NAME"
        )
    missing = find_not_finite(next_obs) & dones
    if not missing.any():
        return ()
    columns["next_obs"] = next_obs.copy()
    columns["next_obs"][missing] = obs[missing]
    rows = many(int(missing.sum()), "terminal row")
    return (f"next_obs is missing in {rows}; it is not needed there, and obs is repeated",)


def keep_rows(column: Array, kept: Array) -> Array:
    """Moves rows to the front in place, without a second copy of the column."""
    if len(kept) < len(column):
        for start in range(0, len(kept), 4096):
            rows = kept[start : start + 4096]
            column[start : start + len(rows)] = column[rows]
    return column[: len(kept)]
