"""What few seeds can tell (Agarwal et al., 2021): interquartile means, bootstrap intervals, chances of improvement."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Scores = NDArray[np.float64]  # [seeds], or [tasks, seeds]


class Interval(NamedTuple):
    low: float
    high: float


def interquartile_mean(scores: ArrayLike) -> float:
    """The mean of the middle half of all scores.

    A quarter of their number, rounded down, is left out at each end (of 5 scores the smallest and the largest), as
    `scipy.stats.trim_mean` does it and rliable after it.
    """
    ordered = np.sort(_checked("scores", scores), axis=None)
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def bootstrap_interval(
    scores: ArrayLike,
    statistic: Callable[[Scores], float] = interquartile_mean,
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Interval:
    """The percentile bootstrap: where the statistic falls when seeds are drawn anew, with replacement.

    Scores [tasks, seeds] are drawn within each task, so that every resample has all tasks in equal parts.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}")
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}")
    seen = _checked("scores", scores)
    drawn = np.random.default_rng(seed).integers(seen.shape[-1], size=(resamples, *seen.shape))
    values = [statistic(np.take_along_axis(seen, rows, axis=-1)) for rows in drawn]
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return Interval(float(low), float(high))


def student_interval(middle: float, error: float, freedom: int, *, confidence: float = 0.95) -> Interval:
    """The middle, and to each side as many standard errors as Student's t asks for.

    The quantile of t comes from the Cornish-Fisher series (Abramowitz & Stegun, 26.7.5): right to 1% from two degrees
    of freedom on, and to four digits from ten on.
    """
    if freedom < 2:
        raise ValueError(f"freedom must be at least 2, got {freedom}")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    series = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    reach = error * sum(term / freedom**power for power, term in enumerate(series))
    return Interval(middle - reach, middle + reach)


def probability_of_improvement(a: ArrayLike, b: ArrayLike) -> float:
    """How often a run of `a` scores above a run of `b`, a tie counting half; of several tasks, their mean."""
    ours, theirs = _checked("a", a), _checked("b", b)
    if ours.shape[:-1] != theirs.shape[:-1]:
        raise ValueError(f"a and b must hold the same tasks, got shapes {ours.shape} and {theirs.shape}")
    difference = ours[..., :, None] - theirs[..., None, :]  # [..., seeds of a, seeds of b]
    return float((0.5 + 0.5 * np.sign(difference)).mean())


def improvement_interval(
    a: ArrayLike, b: ArrayLike, *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """The percentile bootstrap of `probability_of_improvement`: seeds [seeds] of both drawn anew, each on their own."""
    ours, theirs = _checked("a", a), _checked("b", b)
    if ours.ndim != 1 or theirs.ndim != 1:
        raise ValueError(f"a and b must have shape [seeds], got {ours.shape} and {theirs.shape}")
    wins = 0.5 + 0.5 * np.sign(ours[:, None] - theirs[None, :])
    rng = np.random.default_rng(seed)
    # How often each seed is drawn is all that counts.
    drawn, drawn_theirs = (rng.multinomial(n, np.full(n, 1 / n), size=resamples) for n in wins.shape)
    values = ((drawn @ wins) * drawn_theirs).sum(1) / wins.size
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return Interval(float(low), float(high))


def seeds_needed(a: ArrayLike, b: ArrayLike) -> int | None:
    """Seeds of each that would show a difference of means like this one: 5% significance, 80% power, two-sided.

    A normal approximation, 2 * ((1.96 + 0.84) * deviation / difference)^2, that takes what was seen for the truth; of
    few seeds it is a hint. None where the means do not differ, or one of them has a single seed.
    """
    ours, theirs = _checked("a", a), _checked("b", b)
    difference = float(ours.mean() - theirs.mean())
    freedom = ours.size + theirs.size - 2
    if difference == 0 or min(ours.size, theirs.size) < 2:
        return None
    variance = (ours.var() * ours.size + theirs.var() * theirs.size) / freedom
    return max(2, math.ceil(2 * (1.96 + 0.84) ** 2 * variance / difference**2))


def _checked(name: str, scores: ArrayLike) -> Scores:
    seen: NDArray[Any] = np.asarray(scores, dtype=np.float64)
    if seen.ndim not in (1, 2) or seen.size == 0:
        raise ValueError(f"{name} must have shape [seeds] or [tasks, seeds] and hold at least one, got {seen.shape}")
    if not np.isfinite(seen).all():
        raise ValueError(f"{name} must be finite, got {seen[~np.isfinite(seen)][0]}")
    return seen
