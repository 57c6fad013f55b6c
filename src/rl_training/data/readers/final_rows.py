"""Rows that hold only the final observation of an episode."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

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
    final = np.flatnonzero(dones)
    if not np.isnan(columns["actions"][final]).all() or not len(final):
        return (), ()
    ends = dones | (columns["truncated"].reshape(-1) == 1) if "truncated" in columns else dones
    follows = (final > 0) & ~ends[final - 1]
    if "episodes" in columns:
        follows &= columns["episodes"][final - 1] == columns["episodes"][final]
    columns.setdefault("truncated", np.zeros(len(dones)))
    columns["dones"][final], columns["truncated"][final] = 0, 1
    columns["dones"][final[follows] - 1] = 1
    rows = f"{many(len(final), 'terminal row')} without an action {'hold' if len(final) > 1 else 'holds'}"
    note = f"{rows} the last observation of an episode: the row before terminates"
    return (note,), _drop_rewards(columns, final)


def _drop_rewards(columns: Arrays, final: Array) -> Warnings:
    if "rewards" not in columns or not np.nan_to_num(columns["rewards"][final]).any():
        return ()
    columns["rewards"][final] = 0  # these rows are dropped
    text = "rows that hold only the last observation of an episode have rewards, which are not used"
    return (("lost_rewards", text, "write each reward into the row of the action that it is for"),)
