"""Repair of problems that the user allows: rows are dropped or episodes are split."""

from collections.abc import Collection

import numpy as np

from rl_training.data.datasets.validation import find_crossings, find_not_finite, require_finite, require_no_crossing
from rl_training.types import Array, Arrays


def drop_nan_rows(columns: Arrays, allow: Collection[str]) -> Arrays:
    """Drops rows with NaN or infinite values if `allow` has "nan", else raises DatasetError."""
    if "nan" not in allow:
        require_finite(columns)
        return columns
    return drop_rows(columns, np.logical_or.reduce([find_not_finite(column) for column in columns.values()]))


def split_crossings(columns: Arrays, allow: Collection[str]) -> Arrays:
    """Splits episodes where next_obs leads elsewhere if `allow` has "crossing", else raises DatasetError.

    A row with a jump keeps its next_obs and is marked truncated. A truncated row whose next_obs is the start of the
    next episode is dropped, because its true next observation is lost.
    """
    jumps, bridges = find_crossings(*(columns[name] for name in ("obs", "next_obs", "dones", "truncated")))
    if "crossing" not in allow:
        require_no_crossing(jumps | bridges)
        return columns
    truncated = np.logical_or(columns["truncated"], jumps).astype(columns["truncated"].dtype)
    return drop_rows({**columns, "truncated": truncated}, bridges)


def drop_rows(columns: Arrays, wrong: Array) -> Arrays:
    """Drops rows, and truncates their episodes before them."""
    if not wrong.any():
        return columns
    if wrong.all():
        raise ValueError(f"no rows are left: all {len(wrong)} would be dropped")
    truncated = columns["truncated"].copy()
    truncated[:-1][wrong[1:] & (columns["dones"][:-1] == 0)] = 1
    return {name: column[~wrong] for name, column in {**columns, "truncated": truncated}.items()}
