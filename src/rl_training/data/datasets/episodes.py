"""Ends, lengths and returns of the episodes in a dataset."""

from __future__ import annotations

import numpy as np

from rl_training.types import Array


def episode_ends(dones: Array, truncated: Array) -> Array:
    """Flags of the last row of each episode; the last row of the data always ends one."""
    ends = (dones.reshape(-1) != 0) | (truncated.reshape(-1) != 0)
    ends[-1:] = True
    return ends


def episode_lengths(ends: Array) -> Array:
    return np.diff(np.flatnonzero(ends), prepend=-1)


def episode_returns(rewards: Array, ends: Array) -> Array:
    """Undiscounted return of each episode."""
    starts = np.flatnonzero(ends) + 1 - episode_lengths(ends)
    return np.add.reduceat(rewards.reshape(-1), starts, dtype=np.float64) if len(starts) else np.zeros(0)
