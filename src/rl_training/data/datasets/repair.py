"""Faults of data that the user allows: rows are left out or episodes cut, so that what remains is sound."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from rl_training.data.datasets.validation import find_crossings, find_not_finite, require_finite, require_no_crossing
from rl_training.types import Array, Arrays


def drop_nan_rows(columns: Arrays, allow: Collection[str]) -> Arrays:
    """Refuses what is not finite, or leaves such rows out where `allow` names "nan"."""
    if "nan" not in allow:
        require_finite(columns)
        return columns
    wrong = np.logical_or.reduce([find_not_finite(column) for column in columns.values()])
    return drop_rows(columns, wrong)


def split_crossings(columns: Arrays, allow: Collection[str]) -> Arrays:
    """Refuses rows that lead into another episode, or cuts the episodes there where `allow` names "crossing".

    A row that jumps has its own successor and becomes its episode's last; one that was cut and shows the start of the
    next episode has lost it, and is left out.
    """
    jumps, bridges = find_crossings(*(columns[name] for name in ("obs", "next_obs", "dones", "truncated")))
    if "crossing" not in allow:
        require_no_crossing(jumps | bridges)
        return columns
    truncated = np.logical_or(columns["truncated"], jumps).astype(columns["truncated"].dtype)
    return drop_rows({**columns, "truncated": truncated}, bridges)


def drop_rows(columns: Arrays, wrong: Array) -> Arrays:
    """The columns less these rows; the episode that held one ends before it."""
    if not wrong.any():
        return columns
    if wrong.all():
        raise ValueError(f"all {len(wrong)} rows would be left out")
    truncated = columns["truncated"].copy()
    truncated[:-1][wrong[1:] & (columns["dones"][:-1] == 0)] = 1
    return {name: column[~wrong] for name, column in {**columns, "truncated": truncated}.items()}
