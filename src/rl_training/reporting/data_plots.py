"""A dataset as a picture: what its episodes paid, how long they were, and what was seen and done in them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from rl_training.data.datasets.episodes import episode_ends, episode_lengths, episode_returns
from rl_training.reporting.plots import EVALUATION, INK, PALETTE, TRAINING, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array: TypeAlias = "np.ndarray[Any, Any]"

MOST_ROWS = 100_000  # rows that histograms and quantiles are taken from, evenly spread; more look the same
MOST_ACTION_DIMENSIONS = len(PALETTE)
MOST_OBS_DIMENSIONS = 64


def save_data_plot(columns: Mapping[str, Array], target: Path, *, title: str) -> Path:
    """Draws returns, lengths, rewards, actions and observations, in the units they come in."""
    try:
        from matplotlib.figure import Figure  # not pyplot: no window, and the caller's backend stays as it is
    except ImportError as error:
        raise ImportError('a plot needs matplotlib: pip install "rl-training[plot]"') from error
    ends = episode_ends(columns["dones"], columns["truncated"])
    returns, lengths = episode_returns(columns["rewards"], ends), episode_lengths(ends)
    rows = np.linspace(0, len(ends) - 1, min(len(ends), MOST_ROWS)).astype(np.int64)
    figure = Figure(figsize=(13, 7.2), dpi=150, layout="constrained")
    panels = figure.subplots(2, 3).flat
    _draw_returns(panels[0], returns)
    _draw_histogram(panels[1], returns, "episode returns", "return", "episodes")
    _draw_histogram(panels[2], lengths, "episode lengths", "rows", "episodes")
    _draw_histogram(panels[3], columns["rewards"].reshape(-1)[rows], "rewards", "reward of a row", "rows")
    _draw_actions(panels[4], columns["actions"][rows])
    _draw_observations(panels[5], columns["obs"][rows])
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold", color=INK)
    figure.savefig(target)
    return target


def _draw_returns(axes: Axes, returns: Array) -> None:
    axes.plot(np.arange(len(returns)), returns, ".", markersize=3, color=EVALUATION, alpha=0.6)
    _dress(axes, "returns in the order of the data", "episode", "return (sum of its rewards)")
    axes.locator_params(axis="x", integer=True)


def _draw_histogram(axes: Axes, values: Array, title: str, unit: str, counted: str) -> None:
    finite = values[np.isfinite(values)]
    axes.hist(finite, bins=51, color=EVALUATION)
    if len(finite):
        axes.axvline(float(finite.mean()), color=TRAINING, linewidth=1.5)
    _dress(axes, f"{title} (grey: the mean)", unit, counted)


def _draw_actions(axes: Axes, actions: Array) -> None:
    if actions.dtype.kind in "iu":
        choices, counts = np.unique(actions.reshape(-1), return_counts=True)
        axes.bar(choices, counts, color=EVALUATION)
        _dress(axes, "actions", "action", "rows")
        axes.locator_params(axis="x", integer=True)
        return
    flat = actions.reshape(len(actions), -1)
    dimensions = flat.shape[1]
    for number in range(min(dimensions, MOST_ACTION_DIMENSIONS)):
        values = flat[:, number]
        axes.hist(values[np.isfinite(values)], bins=50, histtype="step", color=PALETTE[number], label=str(number))
    shown = "" if dimensions <= MOST_ACTION_DIMENSIONS else f" (the first {MOST_ACTION_DIMENSIONS} of {dimensions})"
    if dimensions > 1:
        axes.legend(title="dimension", ncols=2, frameon=False, fontsize=8, title_fontsize=8, labelcolor=INK)
    _dress(axes, f"actions{shown}", "value", "rows")


def _draw_observations(axes: Axes, obs: Array) -> None:
    """Of each number: its whole range, the middle nine tenths of it and its median; of pixels, how bright they are."""
    if obs.dtype == np.uint8:
        _draw_histogram(
            axes, obs.reshape(len(obs), -1)[:: max(1, len(obs) // 100)].ravel(), "pixels", "value", "pixels"
        )
        return
    flat = obs.reshape(len(obs), -1)[:, :MOST_OBS_DIMENSIONS].astype(np.float64)
    flat = flat[np.isfinite(flat).all(1)]
    numbers = np.arange(flat.shape[1])
    if len(flat):
        lowest, low, middle, high, highest = np.quantile(flat, [0, 0.05, 0.5, 0.95, 1], axis=0)
        axes.vlines(numbers, lowest, highest, color=TRAINING, linewidth=1)
        axes.vlines(numbers, low, high, color=EVALUATION, linewidth=4)
        axes.plot(numbers, middle, "_", color="white")
    _dress(axes, "observations: range, middle 90%, median", "dimension", "value")
    axes.locator_params(axis="x", integer=True)


def _dress(axes: Axes, title: str, below: str, beside: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", color=INK)
    axes.set_xlabel(below, color=INK)
    axes.set_ylabel(beside, color=INK)
    axes.locator_params(axis="x", nbins=6)
    plain(axes)
