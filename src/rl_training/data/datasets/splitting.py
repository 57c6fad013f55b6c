"""Splits the episodes of a dataset into a training and a test part, at random, by time or by group."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np

from rl_training.types import Array

By: TypeAlias = Literal["episode", "time", "group"]
BY = get_args(By)


def held_out_episodes(
    number: Array, fraction: float, *, by: str, seed: int, values: Array | None, column: str | None
) -> Array:
    """Flags of the episodes of the test part; `number` is the episode of each row, `values` the column's."""
    if by not in BY:
        raise ValueError(f"by must be one of {', '.join(BY)}, got {by!r}")
    if not 0 < fraction < 1:
        raise ValueError(f"test must be a fraction between 0 and 1, got {fraction:g}")
    if column is not None and by == "episode":
        raise ValueError(f"column {column!r} needs by='time' or by='group'")
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    if len(starts) < 2:
        raise ValueError("a split needs at least two episodes, and the data has one: episodes are never cut")
    if by == "group":
        return _by_group(number, starts, fraction, seed, _one_number(values, column))
    chosen = np.zeros(len(starts), bool)
    if by == "time":
        times = starts if values is None else _one_number(values, column)[starts]
        chosen[np.argsort(times, kind="stable")[-_share(fraction, len(starts)) :]] = True
    else:
        chosen[np.random.default_rng(seed).permutation(len(starts))[: _share(fraction, len(starts))]] = True
    return chosen


def _by_group(number: Array, starts: Array, fraction: float, seed: int, values: Array) -> Array:
    changes = np.flatnonzero(values != values[starts][number])
    if len(changes):
        raise ValueError(
            f"the group changes within an episode at row {changes[0]}, from {values[starts[number[changes[0]]]]:g} to "
            f"{values[changes[0]]:g}; episodes are never cut, so choose a column that is constant within each"
        )
    groups, group = np.unique(values[starts], return_inverse=True)
    if len(groups) < 2:
        raise ValueError(f"a split by group needs at least two groups, and all rows have the group {groups[0]:g}")
    chosen = np.random.default_rng(seed).permutation(len(groups))[: _share(fraction, len(groups))]
    return np.isin(group, chosen)


def _share(fraction: float, count: int) -> int:
    """The number of test episodes or groups: at least one, and at least one remains for training."""
    return min(max(round(fraction * count), 1), count - 1)


def _one_number(values: Array | None, column: str | None) -> Array:
    if values is None:
        raise ValueError("a split by group needs the column of the groups")
    if values.ndim != 1:
        raise ValueError(f"column {column!r} must have one number per row, got shape {values.shape[1:]} per row")
    return values
