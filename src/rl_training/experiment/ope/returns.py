"""Returns-to-go of the data for off-policy estimates."""

from __future__ import annotations

import numpy as np
import torch

from rl_training.data import TransitionDataset
from rl_training.data.datasets.tensors import to_array
from rl_training.types import Array

FEWEST = 10  # episodes that were longer


def with_estimated_returns(data: TransitionDataset, gamma: float) -> TransitionDataset:
    """Adds returns-to-go. After a truncated episode the return is the mean of the episodes that were longer.

    That is their return-to-go from the same step on. With fewer than FEWEST of them, such as for time limits, the
    rewards of the episode are repeated.
    """
    data = data.with_discounts(gamma).with_discounted_returns_to_go(gamma)
    parts = (data.columns[name].double() for name in ("returns_to_go", "rewards"))
    returns, rewards, ends, dones = map(to_array, (*parts, data.episode_ends, data.columns["dones"] > 0))
    discounts = to_array(data.columns["discounts"].double()) if "discounts" in data.columns else gamma
    column = _with_longer_episodes(returns, rewards, ends, dones, np.broadcast_to(discounts, returns.shape))
    return data.with_columns(returns_to_go=torch.from_numpy(column).to(data.columns["rewards"]))


def _with_longer_episodes(returns: Array, rewards: Array, ends: Array, dones: Array, discounts: Array) -> Array:
    last = np.flatnonzero(ends)
    starts = np.append(0, last[:-1] + 1)
    lengths, returns = last - starts + 1, returns.copy()
    longest_first = np.argsort(-lengths, kind="stable")
    is_cut = ~dones[last] & (discounts[last] > 0)
    for length in np.unique(lengths[is_cut])[::-1]:
        longer = starts[longest_first[: int((lengths > length).sum())]]
        if len(longer) < FEWEST:
            continue
        future, cut = returns[longer + length].mean(), is_cut & (lengths == length)
        before = (returns[last[cut]] - rewards[last[cut]]) / discounts[last[cut]]
        rows = starts[cut][:, None] + np.arange(length)
        products = np.cumprod(discounts[rows][:, ::-1], 1)[:, ::-1]
        returns[rows] += products * (future - before)[:, None]
    return returns
