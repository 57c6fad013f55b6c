"""Weighted importance sampling (WIS) and doubly robust (DR) estimates, per decision and self-normalised."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rl_training import streams
from rl_training.data import TransitionDataset
from rl_training.statistics import Interval

MIN_EFFECTIVE = 10.0  # effective episodes that every step needs; longer products of ratios are cut to a window
RESAMPLES = 500
CONFIDENCE = 0.95
WINDOWS = (256, 128, 64, 32, 16, 8, 4, 2, 1)
MAX_LOG_RATIO = 20.0


class Estimate(NamedTuple):
    value: float
    interval: Interval


@dataclass(frozen=True)
class EstimatorResult:
    """Result of one estimator, or the reason why there is none."""

    estimate: float | None = None
    interval: Interval | None = None  # 95%
    effective_sample_size: float | None = None  # in episodes; importance sampling only
    window: int | None = None  # decisions that a weight covers; None: all
    cloned: bool | None = None  # whether the behaviour policy was cloned from the data
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "interval": None if self.interval is None else list(self.interval)}


class Episodes:
    """Arranges values of rows as a grid [episodes, steps]."""

    def __init__(self, data: TransitionDataset, gamma: float) -> None:
        starts = data.first_rows
        lengths = torch.diff(starts, append=starts.new_tensor([len(data)]))
        self.count = len(starts)
        episode = torch.repeat_interleave(torch.arange(self.count, device=starts.device), lengths)
        # A trajectory may go on after a terminal row, but its return does not.
        number = data.episode_numbers
        self.rows = (number == number[starts][episode]).nonzero().squeeze(1)
        self.episode = episode[self.rows]
        self.step = self.rows - starts[self.episode]
        self.steps = int(self.step.max()) + 1
        discounts = data.columns.get("discounts", torch.full_like(data.columns["rewards"], gamma))
        after = self.grid(discounts.double(), fill=1.0).cumprod(1)
        self.discounts = torch.cat([torch.ones_like(after[:, :1]), after[:, :-1]], 1)  # product before each step

    def grid(self, rows: Tensor, *, fill: float = 0.0) -> Tensor:
        """[episodes, steps], with `fill` after the end of an episode."""
        values = torch.full((self.count, self.steps), fill, dtype=torch.float64, device=rows.device)
        values[self.episode, self.step] = rows[self.rows].double()
        return values


class Weights(NamedTuple):
    """Products of the ratios pi(a|s) / mu(a|s) of the last `window` decisions, [episodes, steps]."""

    values: Tensor
    window: int | None  # None: all decisions
    effective: float  # effective sample size in episodes, averaged over the steps by their discounts

    @property
    def is_useful(self) -> bool:
        return bool((self.values.sum(0) > 0).all())


def importance_weights(episodes: Episodes, log_ratios: Tensor) -> Weights:
    """Weights over all decisions, or over the longest window that leaves MIN_EFFECTIVE episodes at every step.

    w_t = prod_(j > t - window)^t rho_j. An ended episode keeps its last weight: it stays in its terminal state.
    """
    ratios = episodes.grid(log_ratios.clamp(-torch.inf, MAX_LOG_RATIO))  # 0, a ratio of 1, after the end
    windows = [None, *(window for window in WINDOWS if window < episodes.steps)]
    for window in windows:
        weights = _products(ratios, window)
        sizes = weights.sum(0).square() / weights.square().sum(0).clamp_min(1e-300)
        if window == windows[-1] or bool((sizes >= min(MIN_EFFECTIVE, episodes.count)).all()):
            break
    shares = episodes.discounts.mean(0)
    return Weights(weights, window, float((shares * sizes).sum() / shares.sum()))


def _products(log_ratios: Tensor, window: int | None) -> Tensor:
    impossible = log_ratios == -torch.inf
    sums, zeros = log_ratios.masked_fill(impossible, 0.0).cumsum(1), impossible.cumsum(1)
    if window is not None:
        sums, zeros = (_differences(each, window) for each in (sums, zeros))
    return sums.exp() * (zeros == 0)


def _differences(sums: Tensor, window: int) -> Tensor:
    return sums - torch.cat([torch.zeros_like(sums[:, :window]), sums[:, :-window]], 1)


def weighted_importance_sampling(data: TransitionDataset, episodes: Episodes, weights: Weights, seed: int) -> Estimate:
    """WIS: sum_t sum_i D_it w_it r_it / sum_i w_it, where D_it is the discount before step t of episode i.

    The last reward of a truncated episode includes the estimated return after it, as in the behaviour's return. So
    with weights of 1 this is the mean return of the behaviour.
    """
    ends = data.episode_ends
    rewards = torch.where(ends, data.columns["returns_to_go"], data.columns["rewards"])
    terms = episodes.discounts * episodes.grid(rewards)
    return _estimate(terms.unsqueeze(0), torch.zeros(1, episodes.count).to(terms), weights.values, seed)


def doubly_robust(episodes: Episodes, weights: Weights, errors: Tensor, values: Tensor, seed: int) -> Estimate:
    """DR: mean_i V(s_i0) + sum_t sum_i D_it w_it (r + discount (1 - done) V(s') - Q(s, a)) / sum_i w_it.

    `errors` are the TD errors of each fit [fits, rows], `values` those of the first states [fits, episodes].
    """
    terms = torch.stack([episodes.discounts * episodes.grid(each) for each in errors])
    return _estimate(terms, values, weights.values, seed)


def _estimate(terms: Tensor, values: Tensor, weights: Tensor, seed: int) -> Estimate:
    """Estimate of the mean fit, and its percentile bootstrap interval over episodes and fits.

    `terms` [fits, episodes, steps] are averaged with the weights, `values` [fits, episodes] without.
    """
    weighted, fits, count = terms * weights, *values.shape
    generator = streams.generator(seed, "episodes", device=values.device)
    rows = torch.randint(count, (RESAMPLES, count), generator=generator, device=values.device)
    counts = torch.zeros(RESAMPLES, count, dtype=torch.float64, device=values.device)
    counts.scatter_add_(1, rows, torch.ones_like(counts))
    totals, found = counts @ weights, []
    for fit, part in enumerate(torch.arange(RESAMPLES, device=values.device).chunk(fits)):
        # A step without weight in a resample has no estimate there and adds nothing.
        means = torch.where(totals[part] > 0, counts[part] @ weighted[fit] / totals[part].clamp_min(1e-300), 0.0)
        found.append(means.sum(1) + counts[part] @ values[fit] / count)
    tail = (1 - CONFIDENCE) / 2
    low, high = torch.cat(found).quantile(torch.tensor([tail, 1 - tail]).to(values)).tolist()
    mean = (weighted.mean(0).sum(0) / weights.sum(0).clamp_min(1e-300)).sum() + values.mean()
    return Estimate(float(mean), Interval(low, high))
