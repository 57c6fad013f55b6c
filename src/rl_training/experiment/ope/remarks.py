"""Warnings about an estimate, each with what would help."""

from __future__ import annotations

import torch

from rl_training.data import TransitionDataset
from rl_training.experiment.ope.fitting import FQEFit

MAX_UNSEEN = 0.3  # fraction of unseen actions; 0.05 is usual
MAX_CHANGE = 0.05  # change of the estimate in the last fifth of the updates, in standard deviations of the returns
MAX_BEYOND = 0.2  # discounted weight beyond the ends of truncated episodes
MIN_EPISODES = 10


def fit_warnings(fit: FQEFit, data: TransitionDataset, policy: int, unseen: float) -> list[str]:
    """Warnings about the fitted Q evaluation of one policy."""
    warnings, episodes = [], len(fit.obs)
    if unseen > MAX_UNSEEN:
        warnings.append(
            f"in {unseen:.0%} of states the policy's action differs from all actions of the data in similar states "
            "(5% is usual): the estimate is unreliable there"
        )
    change = abs(float(fit.values()[policy].mean() - fit.earlier_values[policy].mean()))
    if change > MAX_CHANGE * fit.value_std:
        warnings.append(f"the estimate still changed by {change:.4g} in the last fifth of the updates: use more")
    beyond = weight_beyond_ends(data, fit.config.gamma)
    if beyond > MAX_BEYOND:
        warnings.append(
            f"{beyond:.0%} of the behaviour's discounted time lies beyond the ends of truncated episodes: "
            "its return is uncertain to that extent"
        )
    if episodes < MIN_EPISODES:
        warnings.append(f"the interval rests on only {episodes} episode{'s' * (episodes > 1)}: collect more")
    return warnings


def weight_beyond_ends(data: TransitionDataset, gamma: float) -> float:
    """Mean of gamma^T over the episodes, with 0 for terminated ones."""
    lengths = torch.diff(data.episode_offsets, append=data.episode_offsets.new_tensor([len(data)]))
    is_truncated = 1 - data.columns["dones"][data.episode_ends]
    return float((is_truncated * gamma**lengths).mean())
