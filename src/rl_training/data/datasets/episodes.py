"""Where the episodes of a dataset end, how long they are and what they pay."""

from __future__ import annotations

import numpy as np

from rl_training.types import Array


def episode_ends(dones: Array, truncated: Array) -> Array:
    """Per row, whether it is its episode's last; the data's last row always is."""
    ends = (dones.reshape(-1) != 0) | (truncated.reshape(-1) != 0)
    ends[-1:] = True
    return ends


def episode_lengths(ends: Array) -> Array:
    return np.diff(np.flatnonzero(ends), prepend=-1)


def episode_returns(rewards: Array, ends: Array) -> Array:
    """The undiscounted sum of each episode's rewards."""
    starts = np.flatnonzero(ends) + 1 - episode_lengths(ends)
    return np.add.reduceat(rewards.reshape(-1), starts, dtype=np.float64) if len(starts) else np.zeros(0)
