"""Performance profiles and probabilities of improvement of a comparison (Agarwal et al., 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_training.messages import many
from rl_training.reporting.comparison import Comparison, Entry, Task
from rl_training.reporting.plots import INK, PALETTE, line_style, new_figure, plain, title_style

LEVELS, RESAMPLES = 101, 1000


def profile(scores: ArrayLike, levels: Sequence[float]) -> list[float]:
    """Fraction of runs with a score above each level."""
    fractions: list[float] = _fractions(np.asarray(scores), levels).tolist()
    return fractions


def profile_band(scores: ArrayLike, levels: Sequence[float]) -> tuple[list[float], list[float]]:
    """95% bootstrap interval of the profile at each level: its lower and its upper bounds."""
    checked = np.asarray(scores)
    resampled = np.random.default_rng(0).choice(checked, (RESAMPLES, len(checked)))
    low, high = np.quantile(_fractions(resampled, levels), [0.025, 0.975], axis=0)
    return low.tolist(), high.tolist()


def _fractions(scores: NDArray[np.float64], levels: Sequence[float]) -> NDArray[np.float64]:
    """Fractions along the last axis: [runs] -> [levels], or [resamples, runs] -> [resamples, levels]."""
    return np.stack([(scores > level).mean(-1) for level in levels], -1)


def save_profiles(found: Comparison, target: Path) -> Path:
    """Draws, for each task, the fraction of runs that score above each level, with 95% bootstrap intervals."""
    figure = new_figure(7, 3.4 * len(found.tasks) + 0.4)
    for number, task in enumerate(found.tasks):
        axes = figure.add_subplot(len(found.tasks), 1, number + 1)
        levels = profile_levels(task)
        for place, entry in enumerate(task.entries):
            _draw_profile(axes, entry, levels, line_style(place))
        axes.set_title(task.name, **title_style(11))
        axes.set_xlabel("score", fontsize=9, color=INK)
        axes.set_ylabel("fraction of runs above it", fontsize=9, color=INK)
        axes.set_ylim(-0.02, 1.02)
        axes.legend(frameon=False, fontsize=9, labelcolor=INK)
        plain(axes)
    figure.savefig(target)
    return target


def profile_levels(task: Task) -> list[float]:
    """Levels from below the lowest to above the highest score of a task."""
    scores = [score for entry in task.entries for score in entry.scores]
    low, high = min(scores), max(scores)
    room = 0.05 * (high - low) or 1.0
    levels: list[float] = np.linspace(low - room, high + room, LEVELS).tolist()
    return levels


def _draw_profile(axes: Any, entry: Entry, levels: Sequence[float], style: dict[str, Any]) -> None:
    if len(entry.scores) > 1:
        low, high = profile_band(entry.scores, levels)
        axes.fill_between(levels, low, high, color=style["color"], alpha=0.2, linewidth=0, step="post")
    label = f"{entry.algo} ({many(len(entry.scores), 'seed')})"
    axes.step(levels, profile(entry.scores, levels), where="post", linewidth=2, label=label, **style)


def save_improvements(found: Comparison, target: Path) -> Path:
    """Draws the probability that a run of one algorithm beats a run of another, with 95% bootstrap intervals."""
    pairs = [(task.name, pair) for task in found.tasks for pair in task.pairs]
    if not pairs:
        raise ValueError("there is nothing to compare: every task has a single algorithm or setting")
    figure = new_figure(7, 0.42 * len(pairs) + 1.3)
    axes = figure.add_subplot()
    several = len(found.tasks) > 1
    for place, (task, pair) in enumerate(pairs):
        color = PALETTE[[each.name for each in found.tasks].index(task) % len(PALETTE)]
        if pair.interval is not None:
            axes.plot(pair.interval, (place, place), color=color, linewidth=6, alpha=0.3, solid_capstyle="butt")
        axes.plot(pair.probability, place, color=color, marker="o", markersize=7)
    names = [f"{pair.a} over {pair.b}" + (f", {task}" if several else "") for task, pair in pairs]
    axes.set_yticks(range(len(pairs)), names)
    axes.invert_yaxis()
    axes.axvline(0.5, color=INK, linewidth=0.8, linestyle=":")
    plain(axes)
    axes.yaxis.set_major_formatter(lambda value, _: names[round(value)])
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("probability of improvement (0.5: no difference)", fontsize=9, color=INK)
    figure.savefig(target)
    return target
