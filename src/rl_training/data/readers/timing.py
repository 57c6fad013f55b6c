"""The time column of a table: order of the rows, gaps, and episodes that end at gaps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from rl_training.data.datasets.validation import DatasetError
from rl_training.data.readers.episodes import Warnings, marked_ends
from rl_training.data.readers.names import STEP_NAMES
from rl_training.data.readers.rows import StoredColumns
from rl_training.messages import first_few, many, rows_text
from rl_training.types import Array, Arrays

LONG = 10  # times the median step is a gap
NEARLY_ALL = 0.9  # of the steps of time decrease in a file with the newest rows first


class TimeColumn(NamedTuple):
    key: str  # its name here
    name: str  # its name in the file
    sorts: bool  # timestamps and columns that the user names; other columns may be the hour of the day


def apply_times(
    columns: Arrays, names: dict[str, str], time: TimeColumn | None, max_gap: float | None, source: object
) -> tuple[Array | None, Warnings]:
    """Sorts rows by episode and time and ends episodes at gaps; changes `columns` and `names`.

    Returns the row in the file of each row if they were sorted, and warnings (kind, text, fix).
    """
    if time is None:
        if max_gap is not None:
            raise DatasetError(f"{source} has no time column for max_gap", "name it with --columns time=NAME")
        return None, ()
    if (missing := np.isnan(columns[time.key])).any():
        raise DatasetError(
            f"{source}: column {time.name!r} is empty in {missing.sum()} of {len(missing)} rows, the first is row "
            f"{missing.argmax()}",
            "fill it, or ignore the column with --columns time=",
        )
    order, warnings = _sorted(columns, time, source)
    warnings = (*warnings, *_repeats(columns, time, order))
    return order, (*warnings, *_gaps(columns, names, columns[time.key], time.name, max_gap, order))


def _sorted(columns: Arrays, time: TimeColumn, source: object) -> tuple[Array | None, Warnings]:
    ids, times = _episodes(columns), columns[time.key]
    order = _order(ids, times)
    if order is None:
        return None, ()
    known = "episodes" in columns or columns.keys().isdisjoint({"dones", "truncated", "next_obs"})
    if not known or not time.sorts:
        fix = f"sort them with --columns time={time.name}" if known else "name it with --columns episodes=NAME"
        missing = "" if known else ", and no column has the id of the episode"
        return None, (("unordered", f"{time.name!r} decreases within episodes{missing}", fix),)
    rises, falls = _rises_and_falls(ids, times)
    newest_first = falls > NEARLY_ALL * (rises + falls)
    if newest_first:  # so are rows of one time
        order = len(order) - 1 - _by_time(ids[::-1], times[::-1])
    for name in columns:
        columns[name] = columns[name][order]
    warning = "sorted", f"rows were not in the order of episode and {time.name!r}, and were sorted", ""
    in_order = rises and not falls  # rows of several episodes alternate
    ties = () if in_order else _ties(columns, time, order, newest_first, source)
    return order, (warning, *ties)


def _rises_and_falls(ids: Array, times: Array) -> tuple[int, int]:
    """How often the time of an episode increases and decreases in the order of the rows."""
    by_id = np.argsort(ids, kind="stable")  # rows of several episodes may alternate
    steps = np.diff(times[by_id])[ids[by_id][1:] == ids[by_id][:-1]]
    return int((steps > 0).sum()), int((steps < 0).sum())


def _ties(columns: Arrays, time: TimeColumn, order: Array, newest_first: bool, source: object) -> Warnings:
    """Warns of sorted rows that share the time of the row before: the time does not show their order.

    Raises DatasetError if a row follows the end of its episode.
    """
    tied, repeats = _same_time(columns, time)
    tied = tied[~repeats]
    fix = "name a column that shows their order, such as a step, or a date with its time, with --columns time=NAME"
    ends = marked_ends(columns)
    if "next_obs" not in columns and len(after := tied[ends[tied - 1] & ~ends[tied]]):
        raise DatasetError(
            f"{source}: {many(len(after), 'row')} would follow the end of the episode, at the same {time.name!r}, so "
            f"this time does not show the order of the rows: {first_few(np.sort(order[after]))}",
            fix,
        )
    if not len(tied):
        return ()
    direction = "the file from its end, where the oldest rows are" if newest_first else "the file"
    text = (
        f"{many(len(tied), 'row')} of {len(order):,} with the {time.name!r} of another row of the episode: their order "
        f"is that of {direction}: {rows_text(np.sort(order[tied]))}"
    )
    return (("tied_times", text, fix),)


def _same_time(columns: Arrays, time: TimeColumn) -> tuple[Array, Array]:
    """Rows with the time of the row before them in their episode, and whether each has all its values too."""
    times, ids = columns[time.key], _episodes(columns)
    later = np.flatnonzero((times[1:] == times[:-1]) & (ids[1:] == ids[:-1])) + 1
    repeats = np.ones(len(later), bool)
    for column in columns.values():
        here, before = column[later], column[later - 1]
        same = (here == before) | ((here != here) & (before != before))  # missing values are NaN
        repeats &= same.all(axis=tuple(range(1, same.ndim)))
    return later, repeats


def _repeats(columns: Arrays, time: TimeColumn, order: Array | None) -> Warnings:
    """Warns of rows with the time and all values of the row before them."""
    tied, repeats = _same_time(columns, time)
    later = tied[repeats] if time.sorts else np.empty(0, int)
    if not len(later):
        return ()
    count = "1 row repeats" if len(later) == 1 else f"{len(later):,} rows repeat"
    rows = rows_text(later if order is None else np.sort(order[later]))
    text = f"{count} another row with the same {time.name!r} and values: {rows}"
    fix = "remove what was recorded or joined twice; without next_obs, a repeated row is a step from a state to itself"
    return (("repeated_rows", text, fix),)


def unordered_steps(columns: Arrays, extras: Iterable[str]) -> Warnings:
    """Warns of rows that are not in the order of episode and step; the steps of an episode must all differ."""
    for name in extras if "episodes" in columns else ():
        if name.lower() not in STEP_NAMES or name not in columns or columns[name].ndim > 1:
            continue
        order = _order(columns["episodes"], columns[name])
        if order is None:
            continue
        ids, steps = columns["episodes"][order], columns[name][order]
        if (steps[1:] > steps[:-1])[ids[1:] == ids[:-1]].all():
            text = f"rows are not in the order of episode and {name!r}"
            return (("unordered", text, f"sort them with --columns time={name} if {name!r} counts the steps"),)
    return ()


def _episodes(columns: Arrays) -> Array:
    """A number for each episode, by the column of ids or else by the ends that are marked."""
    if "episodes" in columns:
        return columns["episodes"]
    ends = marked_ends(columns)
    return np.cumsum(ends) - ends


def from_first_time(stored: StoredColumns) -> StoredColumns:
    """Replaces timestamps by seconds since the first one, which float32 can hold."""
    for name in stored.labels.times:
        if name in stored.columns:
            stored.columns[name] = stored.columns[name] - np.nanmin(stored.columns[name])
    return stored


def _order(ids: Array, times: Array) -> Array | None:
    """The rows in order of episode and time, or None if they already are."""
    same = ids[1:] == ids[:-1]
    together = (~same).sum() + 1 == len(np.unique(ids))
    if together and (times[1:] >= times[:-1])[same].all():
        return None
    return _by_time(ids, times)


def _by_time(ids: Array, times: Array) -> Array:
    return np.lexsort((times, ids))  # ids count episodes by their first row; rows of one time stay in their order


def _gaps(
    columns: Arrays, names: dict[str, str], times: Array, time: str, max_gap: float | None, order: Array | None
) -> Warnings:
    ids, steps = _episodes(columns), np.diff(times)
    inside = (ids[1:] == ids[:-1]) & ~marked_ends(columns)[:-1]
    if max_gap is not None:
        split = np.concatenate([[0], np.cumsum((ids[1:] != ids[:-1]) | (steps > max_gap))])
        columns["episodes"], names["episodes"] = split, names.get("episodes", time)
        inside &= steps <= max_gap
    usual = float(np.median(steps[inside])) if inside.any() else 0.0
    gaps = np.flatnonzero(inside & (steps > LONG * usual)) if usual > 0 else np.empty(0, np.int64)
    if not len(gaps):
        return ()
    rows = gaps + 1 if order is None else order[gaps + 1]
    count = "1 step within an episode is" if len(rows) == 1 else f"{len(rows)} steps within episodes are"
    text = (
        f"{count} over {LONG} times as long as the median step of {usual:g} s, before "
        f"{rows_text(rows)}; the longest is {steps[gaps].max():g} s"
    )
    return (("time_gaps", text, f"end episodes at gaps with --max-gap SECONDS, such as {LONG * usual:g}"),)
