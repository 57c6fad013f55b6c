"""Trajectories of several episodes, which continue after terminal rows, as in OGBench, or after dropped rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rl_training.types import Array

STORED = "_trajectories"  # column of files written here


def first_rows(trajectories: Array) -> Array:
    """Returns the index of each trajectory's first row; `trajectories` has the trajectory number of each row."""
    return np.flatnonzero(np.diff(trajectories, prepend=-1))


def trajectory_returns(rewards: Array, starts: Array) -> Array:
    """Returns the sum of the rewards of each trajectory; `starts` are their first rows."""
    return np.add.reduceat(rewards.reshape(-1), starts, dtype=np.float64)


def before_terminals(dones: Array, starts: Array) -> Array:
    """Flags the rows of each trajectory up to its first terminal row."""
    earlier = np.cumsum(dones) - dones  # terminal rows before each row
    return earlier == np.repeat(earlier[starts], np.diff(starts, append=len(dones)))


def renumbered(parts: Sequence[Array]) -> Array:
    """Concatenates the numbers of several files or datasets, so that no number occurs in two of them."""
    distinct = [np.unique(part, return_inverse=True)[1] for part in parts]
    before = np.cumsum([0, *(part.max(initial=-1) + 1 for part in distinct)])
    return np.concatenate([part + start for part, start in zip(distinct, before, strict=False)])


def copy_origin(dataset: Any, source: Any, rows: Array) -> None:
    """Sets what is known of the file, its episodes and the trajectories to that of rows of `source`."""
    dataset.action_range, dataset.incomplete = source.action_range, source.incomplete
    for name in ("file_episodes", "trajectories"):
        numbers = getattr(source, name)
        setattr(dataset, name, None if numbers is None else numbers[rows])
