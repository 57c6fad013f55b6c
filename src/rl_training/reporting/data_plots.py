"""Plots of a dataset: returns, lengths, rewards, actions and observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rl_training.data.datasets.returns import episode_ends, episode_lengths, episode_returns
from rl_training.data.readers.rows import NO_LABELS, Labels
from rl_training.reporting.plots import EVALUATION, INK, PALETTE, TRAINING, new_figure, plain, title_style
from rl_training.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_ROWS = 100_000  # evenly spaced rows for histograms and quantiles
MAX_ACTION_DIMENSIONS = len(PALETTE)
MAX_OBS_DIMENSIONS = 64
MAX_NAMES, MAX_NAME = 40, 20  # named ticks, and characters of each
MAX_TITLE = 110  # characters


def save_data_plot(columns: Mapping[str, Array], target: Path, *, title: str, labels: Labels = NO_LABELS) -> Path:
    """Draws six panels in the units of the data; `labels` has the names of a table."""
    ends = episode_ends(columns["dones"], columns["truncated"])
    returns, lengths = episode_returns(columns["rewards"], ends), episode_lengths(ends)
    rows = np.linspace(0, len(ends) - 1, min(len(ends), MAX_ROWS)).astype(np.int64)
    figure = new_figure(13, 7.2)
    panels = figure.subplots(2, 3).flat
    _draw_returns(panels[0], returns)
    _draw_histogram(panels[1], returns, "episode returns", "return", "episodes")
    _draw_histogram(panels[2], lengths, "episode lengths", "steps", "episodes")
    _draw_histogram(panels[3], columns["rewards"].reshape(-1)[rows], "rewards", "reward", "rows")
    _draw_actions(panels[4], columns["actions"][rows], labels)
    _draw_observations(panels[5], columns["obs"][rows], labels.names.get("obs", ()))
    if len(title) > MAX_TITLE:  # the end of a long path fits into the figure
        title = f"…{title[-MAX_TITLE:]}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold", color=INK)
    figure.savefig(target)
    return target


def _draw_returns(axes: Axes, returns: Array) -> None:
    axes.plot(np.arange(len(returns)), returns, ".", markersize=3, color=EVALUATION, alpha=0.6)
    _label(axes, "episode returns over time", "episode", "return")
    axes.locator_params(axis="x", integer=True)


def _draw_histogram(axes: Axes, values: Array, title: str, unit: str, counted: str) -> None:
    finite = values[np.isfinite(values)]
    axes.hist(finite, bins=51, color=EVALUATION)
    if len(finite):
        axes.axvline(float(finite.mean()), color=TRAINING, linewidth=1.5)
    _label(axes, f"{title} (grey line: mean)", unit, counted)
    axes.locator_params(axis="y", integer=True)


def _draw_actions(axes: Axes, actions: Array, labels: Labels) -> None:
    values_of = labels.categories.get("actions", ())
    if (actions.dtype.kind in "iu" and actions.size == len(actions)) or values_of:
        found, counts = np.unique(actions[np.isfinite(actions)].reshape(-1).astype(np.int64), return_counts=True)
        axes.bar(found + labels.action_start, counts, color=EVALUATION)
        _label(axes, "actions", "action", "rows")
        axes.locator_params(axis="x", integer=True)
        _name_ticks(axes, values_of)
        return
    names = labels.names.get("actions", ())
    flat: Array = actions.reshape(len(actions), -1) + np.asarray(labels.action_start)
    dimensions = flat.shape[1]
    for number in range(min(dimensions, MAX_ACTION_DIMENSIONS)):
        values = flat[:, number]
        axes.hist(values[np.isfinite(values)], bins=50, histtype="step", color=PALETTE[number],
                  label=names[number] if len(names) == dimensions else str(number))  # fmt: skip
    shown = f" (first {MAX_ACTION_DIMENSIONS} of {dimensions} dimensions)" if dimensions > MAX_ACTION_DIMENSIONS else ""
    if dimensions > 1:
        axes.margins(y=0.35)  # room for the legend above the histograms
        axes.legend(title="dimension", ncols=6, loc="upper center", frameon=False, fontsize=8, title_fontsize=8,
                    labelcolor=INK)  # fmt: skip
    _label(axes, f"actions{shown}", "value", "rows")


def _name_ticks(axes: Axes, names: Sequence[str]) -> None:
    """Names instead of numbers below the axis, unless there are too many to read."""
    if 1 < len(names) <= MAX_NAMES:
        axes.set_xticks(range(len(names)), [name[:MAX_NAME] for name in names], rotation=45, ha="right", fontsize=8)


def _draw_observations(axes: Axes, obs: Array, names: Sequence[str]) -> None:
    """Range, central 90 % and median of each dimension, or a histogram of pixel values."""
    whole = obs.reshape(len(obs), -1)
    if obs.dtype == np.uint8:
        _draw_histogram(axes, whole[:: max(1, len(obs) // 100)].ravel(), "pixels", "value", "pixels")
        return
    flat = whole[:, :MAX_OBS_DIMENSIONS].astype(np.float64)
    flat = flat[np.isfinite(flat).all(1)]
    numbers = np.arange(flat.shape[1])
    if len(flat):
        minimum, low, median, high, maximum = np.quantile(flat, [0, 0.05, 0.5, 0.95, 1], axis=0)
        axes.vlines(numbers, minimum, maximum, color=TRAINING, linewidth=1)
        axes.vlines(numbers, low, high, color=EVALUATION, linewidth=4)
        axes.plot(numbers, median, "_", color="white")
    dimensions = whole.shape[1]
    shown = "" if dimensions <= MAX_OBS_DIMENSIONS else f" (first {MAX_OBS_DIMENSIONS} of {dimensions})"
    _label(axes, f"observations{shown}", "dimension", "range, central 90 %, median")
    axes.locator_params(axis="x", integer=True)
    _name_ticks(axes, names if len(names) == dimensions else ())


def _label(axes: Axes, title: str, x_label: str, y_label: str) -> None:
    axes.set_title(title, **title_style(11))
    axes.set_xlabel(x_label, color=INK)
    axes.set_ylabel(y_label, color=INK)
    axes.locator_params(axis="x", nbins=6)
    plain(axes)
