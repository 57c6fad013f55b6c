"""Rewards that are one number instead of a column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rl_training.data.readers.names import constant_rewards
from rl_training.data.readers.rows import StoredColumns


def with_rewards(stored: StoredColumns, given: Mapping[str, str]) -> StoredColumns:
    """Sets all rewards if `given` names a number for them."""
    if "rewards" in stored.columns or (reward := constant_rewards(given, ())) is None:
        return stored
    rewards = np.full(len(stored.columns["obs"]), reward, np.float32)
    names = {**stored.names, "rewards": given["rewards"]}
    return replace(stored, columns={**stored.columns, "rewards": rewards}, names=names)
