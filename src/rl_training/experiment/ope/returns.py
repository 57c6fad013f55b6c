"""Returns-to-go of the data for off-policy estimates."""

from __future__ import annotations

import numpy as np
import torch

from rl_training.data import TransitionDataset
from rl_training.data.datasets.tensors import to_array
from rl_training.types import Array

FEWEST = 10  # rows at the same step


def with_estimated_returns(data: TransitionDataset, gamma: float) -> TransitionDataset:
    """Adds returns-to-go. A truncated episode continues with the mean return of all rows at the next step.

    Steps count from the first row of the file's episode, because dropped rows cut episodes into pieces. If fewer than
    FEWEST rows are at that step, as after time limits, the rewards of the episode are repeated.
    """
    data = data.with_discounts(gamma).with_discounted_returns_to_go(gamma)
    parts = (data.columns[name].double() for name in ("returns_to_go", "rewards"))
    returns, rewards, ends, dones = map(to_array, (*parts, data.episode_ends, data.columns["dones"] > 0))
    discounts = to_array(data.columns["discounts"].double()) if "discounts" in data.columns else gamma
    steps = _steps(ends & ~dones, to_array(data.first_rows))
    column = _with_next_steps(returns, rewards, ends, dones, np.broadcast_to(discounts, returns.shape), steps)
    return data.with_columns(returns_to_go=torch.from_numpy(column).to(data.columns["rewards"]))


def _steps(cuts: Array, first: Array) -> Array:
    """The step of each row in its episode. Assumes that one row was dropped at each cut."""
    passed = np.arange(len(cuts)) + np.cumsum(cuts) - cuts
    return passed - np.repeat(passed[first], np.diff(first, append=len(cuts)))


def _with_next_steps(
    returns: Array, rewards: Array, ends: Array, dones: Array, discounts: Array, steps: Array
) -> Array:
    last = np.flatnonzero(ends)
    starts, returns = np.append(0, last[:-1] + 1), returns.copy()
    is_cut = ~dones[last] & (discounts[last] > 0)
    starts, last = starts[is_cut], last[is_cut]
    by_step, counts = np.argsort(steps, kind="stable"), np.bincount(steps, minlength=int(steps.max()) + 2)
    stops = np.cumsum(counts)
    latest_first = np.argsort(-steps[last], kind="stable")
    future, reached = 0.0, -1
    for start, end in zip(starts[latest_first].tolist(), last[latest_first].tolist(), strict=True):
        step = int(steps[end]) + 1
        if counts[step] < FEWEST:
            continue
        if step != reached:  # all rows at this step are final: later cuts are done
            future, reached = returns[by_step[stops[step] - counts[step] : stops[step]]].mean(), step
        before = (returns[end] - rewards[end]) / discounts[end]
        returns[start : end + 1] += np.cumprod(discounts[start : end + 1][::-1])[::-1] * (future - before)
    return returns
