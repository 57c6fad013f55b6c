"""What few seeds can tell (Agarwal et al., 2021): interquartile means, bootstrap intervals, chances of improvement."""

from __future__ import annotations

from collections.abc import Callable
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


def probability_of_improvement(a: ArrayLike, b: ArrayLike) -> float:
    """How often a run of `a` scores above a run of `b`, a tie counting half; of several tasks, their mean."""
    ours, theirs = _checked("a", a), _checked("b", b)
    if ours.shape[:-1] != theirs.shape[:-1]:
        raise ValueError(f"a and b must hold the same tasks, got shapes {ours.shape} and {theirs.shape}")
    difference = ours[..., :, None] - theirs[..., None, :]  # [..., seeds of a, seeds of b]
    return float((0.5 + 0.5 * np.sign(difference)).mean())


def _checked(name: str, scores: ArrayLike) -> Scores:
    seen: NDArray[Any] = np.asarray(scores, dtype=np.float64)
    if seen.ndim not in (1, 2) or seen.size == 0:
        raise ValueError(f"{name} must have shape [seeds] or [tasks, seeds] and hold at least one, got {seen.shape}")
    if not np.isfinite(seen).all():
        raise ValueError(f"{name} must be finite, got {seen[~np.isfinite(seen)][0]}")
    return seen
