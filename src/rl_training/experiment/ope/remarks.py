"""Warnings about an estimate, each with what would help."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch

from rl_training.data import TransitionDataset
from rl_training.data.readers.names import LOGGED
from rl_training.experiment.ope.fitting import FQEFit
from rl_training.experiment.ope.importance import MIN_EFFECTIVE, EstimatorResult
from rl_training.messages import many
from rl_training.statistics import Interval

MAX_UNSEEN = 0.3  # fraction of unseen actions; 0.05 is usual
MAX_CHANGE = 0.05  # change of the estimate in the last fifth of the updates, in standard deviations of the returns
MAX_BEYOND = 0.2  # discounted weight beyond the ends of truncated episodes
MARGIN = 0.1  # of the range of returns, beyond which an estimate is an extrapolation
MIN_EPISODES = 10


def fit_warnings(fit: FQEFit, policy: int, unseen: float) -> list[str]:
    """Warnings about the fitted Q evaluation of one policy."""
    warnings, episodes = [], len(fit.obs)
    if unseen > MAX_UNSEEN:
        warnings.append(
            f"in {unseen:.0%} of states the policy's action differs from all actions of the data in similar states "
            "(5% is usual): the estimate is unreliable there; use a policy closer to the data, or collect such actions"
        )
    change = fit.last_change(policy)
    if change > MAX_CHANGE * fit.value_std:
        warnings.append(
            f"the estimate still changed by {change:.4g} in the last fifth of the updates: use more updates (--updates)"
        )
    beyond = weight_beyond_ends(fit.data, fit.config.gamma)
    if beyond > MAX_BEYOND:
        warnings.append(
            f"{beyond:.0%} of the behaviour's discounted time lies beyond the ends of truncated episodes: "
            "its return is uncertain to that extent; use a smaller --gamma, or longer episodes"
        )
    if episodes < MIN_EPISODES:
        warnings.append(f"the interval rests on only {many(episodes, 'episode')}: collect more")
    return warnings


def range_warnings(data: TransitionDataset, estimate: float, interval: Interval) -> list[str]:
    """Warnings about an estimate beyond all returns of the data, and about an interval that separates nothing."""
    returns = data.columns["returns_to_go"].double()
    low, high = float(returns.min()), float(returns.max())
    if not low - MARGIN * (high - low) <= estimate <= high + MARGIN * (high - low):
        return [
            f"the estimate {estimate:.4g} is beyond all returns of the data ({low:.4g} to {high:.4g}): it is an "
            "extrapolation; use data of policies closer to this one"
        ]
    if interval.high - interval.low > high - low > 0:
        return [
            f"the interval is wider than the range of returns in the data ({low:.4g} to {high:.4g}): it cannot "
            "rank this policy; use more updates, more episodes or a policy closer to the data"
        ]
    return []


def importance_warnings(estimates: Mapping[str, EstimatorResult], incomplete: Collection[str] = ()) -> list[str]:
    """Warnings about importance weights, which WIS and DR share; `incomplete` columns of the data are left out."""
    found = next((each for each in estimates.values() if each.effective_sample_size is not None), None)
    if found is None or found.effective_sample_size is None:
        return []
    warnings = []
    if found.cloned:
        fix = "log the probability of each action (column action_logprob)"
        if lost := [name for name in LOGGED if name in incomplete]:
            fix = f"{lost[0]} is not used, because values are missing; fill them in, or leave out these rows,"
        warnings.append(f"wis and dr use a behaviour policy that was cloned from the data: {fix} for exact weights")
    if found.window is not None:
        warnings.append(
            f"wis and dr weight the last {many(found.window, 'decision')} only, because longer "
            "products leave too few episodes: wis leans towards the behaviour and has no interval; use a policy "
            "closer to the data"
        )
    if found.effective_sample_size < MIN_EFFECTIVE:
        warnings.append(
            f"the importance weights leave {found.effective_sample_size:.1f} effective episodes: do not trust wis and "
            "dr; use more episodes or a policy closer to the data"
        )
    return warnings


def weight_beyond_ends(data: TransitionDataset, gamma: float) -> float:
    """Mean discount of the value after an episode, gamma^T for T equal steps, with 0 for terminated ones."""
    lengths = torch.diff(data.episode_offsets, append=data.episode_offsets.new_tensor([len(data)]))
    is_truncated = 1 - data.columns["dones"][data.episode_ends]
    if "discounts" not in data.columns:
        return float((is_truncated * gamma**lengths).mean())
    products = torch.segment_reduce(data.columns["discounts"].contiguous(), "prod", lengths=lengths)
    return float((is_truncated * products).mean())
