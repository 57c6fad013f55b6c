"""Discounted returns-to-go of whole datasets, without a loop over rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
BLOCK = 2**15  # rows


def returns_to_go(rewards: Floats, ends: Flags, terminated: Flags, gamma: float) -> Floats:
    """What each row's episode pays from there on; `ends` marks last rows, `terminated` those with nothing after them.

    An episode that was only cut goes on as `truncated_futures` has it.
    """
    last = np.flatnonzero(ends)
    lengths = np.diff(last, prepend=-1)
    remaining = np.repeat(last, lengths) - np.arange(len(rewards))  # rows after this one
    discounts = gamma ** np.arange(lengths.max() + 1.0)
    futures = np.where(terminated[last], 0.0, truncated_futures(rewards, remaining, lengths, discounts))
    return discounted_sums(rewards, remaining, gamma) + discounts[remaining + 1] * np.repeat(futures, lengths)


def discounted_sums(rewards: Floats, remaining: npt.NDArray[np.integer[Any]], gamma: float) -> Floats:
    """sum_k gamma^k r_(t+k) to the end of each episode, twice as many terms a pass.

    A pass goes forward in blocks that the cache holds: what a block looks ahead to is still as the last pass left it.
    """
    sums, remaining = rewards.copy(), remaining.astype(np.int32)
    reach, longest = 1, int(remaining.max())
    while reach <= longest and gamma**reach > 0:
        for start in range(0, len(sums) - reach, BLOCK):
            rows = slice(start, min(start + BLOCK, len(sums) - reach))
            ahead = sums[rows.start + reach : rows.stop + reach] * gamma**reach
            ahead *= remaining[rows] >= reach
            sums[rows] += ahead
        reach *= 2
    return sums


def truncated_futures(
    rewards: Floats, remaining: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], discounts: Floats
) -> Floats:
    """What each episode, had it been cut, may still pay if its future pays as its past did, the recent weighing most.

    That is sum_k gamma^k r_(T-k) / (1 - gamma^T): its rewards once more from the last to the first, for ever. Rewards
    that are all r give r / (1 - gamma), which is also what Cal-QL counts for an episode that never succeeds. With
    gamma = 1 there is no finite value, and 0 is counted.
    """
    if discounts[1] == 1:
        return np.zeros(len(lengths))
    backward = np.add.reduceat(rewards * discounts[remaining], np.cumsum(lengths) - lengths)
    return backward / (1 - discounts[lengths])
