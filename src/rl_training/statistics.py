"""Interquartile mean, bootstrap confidence interval and probability of improvement (Agarwal et al., 2021)."""

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Scores = NDArray[np.float64]  # [seeds], or [tasks, seeds]
RESAMPLES = 10_000


class Interval(NamedTuple):
    low: float
    high: float

    def overlaps(self, other: "Interval") -> bool:
        return self.low <= other.high and other.low <= self.high

    def widened(self, by: float) -> "Interval":
        return Interval(self.low - by, self.high + by)


def interquartile_mean(scores: ArrayLike) -> float:
    """Mean of the middle 50 % of all scores; a quarter, rounded down, is dropped at each end, as in rliable."""
    ordered = np.sort(_checked("scores", scores), axis=None)
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def bootstrap_interval(
    scores: ArrayLike, statistic: Callable[[Scores], float] = interquartile_mean, *, confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> Interval:  # fmt: skip
    """Percentile bootstrap confidence interval of a statistic over resampled seeds, stratified by task."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}")
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}")
    checked = _checked("scores", scores)
    if statistic is interquartile_mean and checked.ndim == 1:  # the same numbers, a hundred times as fast
        band = bootstrap_band(checked[None], confidence=confidence, resamples=resamples)
        return Interval(float(band.low[0]), float(band.high[0]))
    indices = np.random.default_rng(0).integers(checked.shape[-1], size=(resamples, *checked.shape))
    values = [statistic(np.take_along_axis(checked, rows, axis=-1)) for rows in indices]
    return _percentiles(values, confidence)


class Band(NamedTuple):
    """Interquartile mean at each step, and the bounds of its interval."""

    middle: Scores
    low: Scores
    high: Scores


def bootstrap_band(scores: ArrayLike, *, confidence: float = 0.95, resamples: int = 1000, block: int = 2**22) -> Band:
    """`interquartile_mean` and `bootstrap_interval` of each row of scores [steps, seeds], computed together."""
    checked = _checked("scores", scores)
    seeds = checked.shape[-1]
    indices = np.random.default_rng(0).integers(seeds, size=(resamples, seeds))
    cut, tail = seeds // 4, (1 - confidence) / 2
    rows = max(1, block // indices.size)  # limits the memory of the resampled scores
    bounds = [
        np.quantile(_middles(part[:, indices], cut), [tail, 1 - tail], axis=-1)
        for part in (checked[start : start + rows] for start in range(0, len(checked), rows))
    ]
    low, high = np.concatenate(bounds, axis=-1)
    return Band(_middles(checked, cut), low, high)


def _middles(scores: Scores, cut: int) -> Scores:
    """Means along the last axis without `cut` scores at each end."""
    ordered = np.sort(scores, axis=-1)
    means: Scores = ordered[..., cut : ordered.shape[-1] - cut].mean(-1)
    return means


def student_interval(mean: float, standard_error: float, freedom: int) -> Interval:
    """Student's t 95% confidence interval with `freedom` degrees of freedom."""
    if freedom < 2:
        raise ValueError(f"freedom must be at least 2, got {freedom}")
    # Cornish-Fisher series (Abramowitz & Stegun, 26.7.5): error below 1 % from 2 degrees of freedom, 0.01 % from 10.
    z = NormalDist().inv_cdf(0.975)
    series = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    width = standard_error * sum(term / freedom**power for power, term in enumerate(series))
    return Interval(mean - width, mean + width)


def probability_of_improvement(a: ArrayLike, b: ArrayLike) -> float:
    """P(a > b) + P(a = b) / 2 over all pairs of runs, averaged over tasks."""
    first, second = _checked("a", a), _checked("b", b)
    if first.shape[:-1] != second.shape[:-1]:
        raise ValueError(f"a and b must have the same tasks, got shapes {first.shape} and {second.shape}")
    difference = first[..., :, None] - second[..., None, :]  # [..., seeds of a, seeds of b]
    return float((0.5 + 0.5 * np.sign(difference)).mean())


def improvement_interval(a: ArrayLike, b: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Percentile bootstrap confidence interval of `probability_of_improvement`, resampling the seeds of a and b."""
    first, second = _checked("a", a), _checked("b", b)
    if first.ndim != 1 or second.ndim != 1:
        raise ValueError(f"a and b must have shape [seeds], got {first.shape} and {second.shape}")
    wins = 0.5 + 0.5 * np.sign(first[:, None] - second[None, :])
    rng = np.random.default_rng(0)
    # The value depends only on how often each seed is resampled.
    counts_a, counts_b = (rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES) for n in wins.shape)
    return _percentiles(((counts_a @ wins) * counts_b).sum(1) / wins.size, confidence)


def seeds_needed(a: ArrayLike, b: ArrayLike) -> int | None:
    """Seeds per algorithm to detect this difference of means: two-sided test, 5 % significance, 80 % power."""
    # Normal approximation 2 * ((1.96 + 0.84) * std / difference)^2 with the observed values, rough for few seeds.
    # None if the means are equal or one algorithm has a single seed.
    first, second = _checked("a", a), _checked("b", b)
    difference = float(first.mean() - second.mean())
    freedom = first.size + second.size - 2
    if difference == 0 or min(first.size, second.size) < 2:
        return None
    variance = (first.var() * first.size + second.var() * second.size) / freedom
    return max(2, math.ceil(2 * (1.96 + 0.84) ** 2 * variance / difference**2))


def _percentiles(values: Sequence[float] | Scores, confidence: float) -> Interval:
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return Interval(float(low), float(high))


def _checked(name: str, scores: ArrayLike) -> Scores:
    array: NDArray[Any] = np.asarray(scores, dtype=np.float64)
    if array.ndim not in (1, 2) or array.size == 0:
        raise ValueError(f"{name} must have shape [seeds] or [tasks, seeds] with at least one score, got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)][0]}")
    return array
