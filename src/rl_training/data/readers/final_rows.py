"""Rows that hold only the final observation of an episode."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rl_training.data.datasets.validation import find_not_finite
from rl_training.data.readers.episodes import Warnings
from rl_training.messages import many
from rl_training.types import Array, Arrays


def end_before_final_rows(columns: Arrays, names: Mapping[str, str]) -> tuple[tuple[str, ...], Warnings]:
    """Marks the row before a terminal row as terminal if no terminal row has an action; changes `columns`.

    The final rows become truncated, and are dropped as others without a next observation. Returns notes and warnings.
    """
    if "next_obs" in columns or "dones" not in names:
        return (), ()
    dones = columns["dones"].reshape(-1) == 1
    final = np.flatnonzero(dones & find_not_finite(columns["actions"]))
    if not len(final) or len(final) < dones.sum():
        return (), ()
    ends = dones | (columns["truncated"].reshape(-1) == 1) if "truncated" in columns else dones
    follows = (final > 0) & ~ends[final - 1]
    if "episodes" in columns:
        follows &= columns["episodes"][final - 1] == columns["episodes"][final]
    columns.setdefault("truncated", np.zeros(len(dones)))
    columns["dones"][final], columns["truncated"][final] = 0, 1
    columns["dones"][final[follows] - 1] = 1
    rows = many(len(final), "terminal row")
    note = f"{rows} without an action hold the last observation of an episode: the row before terminates"
    return (note,), _rewards_there(columns, final)


def _rewards_there(columns: Arrays, final: Array) -> Warnings:
    if "rewards" not in columns or not np.nan_to_num(columns["rewards"][final]).any():
        return ()
    text = "rows that hold only the last observation of an episode have rewards, which are not used"
    return (("lost_rewards", text, "write each reward into the row of the action that it is for"),)
