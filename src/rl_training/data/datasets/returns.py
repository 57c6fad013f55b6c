"""Ends, lengths, returns and discounted returns-to-go of a dataset's episodes, vectorised over rows."""

import numpy as np
import numpy.typing as npt

from rl_training.data.datasets.validation import DatasetError
from rl_training.types import Array

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
BLOCK = 2**15  # rows


def episode_ends(dones: Array, truncated: Array) -> Array:
    """Flags of the last row of each episode; the last row of the data always ends one."""
    ends = (dones.reshape(-1) != 0) | (truncated.reshape(-1) != 0)
    ends[-1:] = True
    return ends


def episode_lengths(ends: Array) -> Array:
    return np.diff(np.flatnonzero(ends), prepend=-1)


def episode_returns(rewards: Array, ends: Array) -> Array:
    """Undiscounted return of each episode."""
    starts = np.flatnonzero(ends) + 1 - episode_lengths(ends)
    return np.add.reduceat(rewards.reshape(-1), starts, dtype=np.float64) if len(starts) else np.zeros(0)


def returns_to_go(rewards: Floats, ends: Flags, terminated: Flags, gamma: float | Floats) -> Floats:
    """Discounted returns-to-go; `ends` flags the last row of each episode, `terminated` the terminal ones.

    `gamma` is the discount of all rows, or the discount of each.
    """
    if not isinstance(gamma, float | int):
        return uneven_returns_to_go(rewards, ends, terminated, gamma)
    last, lengths = np.flatnonzero(ends), episode_lengths(ends)
    remaining = np.repeat(last, lengths) - np.arange(len(rewards))  # rows after this one
    discounts = gamma ** np.arange(lengths.max() + 1.0)
    futures = np.where(terminated[last], 0.0, truncated_futures(rewards, remaining, lengths, discounts))
    return discounted_sums(rewards, remaining, gamma) + discounts[remaining + 1] * np.repeat(futures, lengths)


def discounted_sums(rewards: Floats, remaining: Array, gamma: float) -> Floats:
    """sum_k gamma^k r_(t+k) to the end of each episode; every pass doubles the number of terms."""
    # A pass runs forward in blocks that fit into the cache. Rows ahead of a block still hold the previous pass.
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


def truncated_futures(rewards: Floats, remaining: Array, lengths: Array, discounts: Floats) -> Floats:
    """Estimated return after the end of each episode: sum_k gamma^k r_(T-k) / (1 - gamma^T)."""
    # Repeats the episode's rewards in reverse order forever. Constant rewards r give r / (1 - gamma), the value that
    # Cal-QL uses for episodes that never succeed. With gamma = 1 the sum is infinite, and 0 is returned.
    if discounts[1] == 1:
        return np.zeros(len(lengths))
    backward = np.add.reduceat(rewards * discounts[remaining], np.cumsum(lengths) - lengths)
    return backward / (1 - discounts[lengths])


def uneven_returns_to_go(rewards: Floats, ends: Flags, terminated: Flags, discounts: Floats) -> Floats:
    """Returns-to-go G_t = r_t + d_t G_(t+1) with the discount d_t of each row."""
    last, lengths = np.flatnonzero(ends), episode_lengths(ends)
    remaining = np.repeat(last, lengths) - np.arange(len(rewards))  # rows after this one
    sums, products, reach = rewards.copy(), discounts.copy(), 1
    while reach <= int(remaining.max()):  # every pass doubles the number of terms
        inside = remaining[:-reach] >= reach
        sums[:-reach] += products[:-reach] * np.where(inside, sums[reach:], 0)
        products[:-reach] *= np.where(inside, products[reach:], 1)
        reach *= 2
    futures = np.where(terminated[last], 0.0, _uneven_futures(rewards, products, ends, lengths))
    return sums + products * np.repeat(futures, lengths)


def _uneven_futures(rewards: Floats, products: Floats, ends: Flags, lengths: Array) -> Floats:
    """`truncated_futures` with a discount per row; `products` multiplies those from a row to its episode's end."""
    starts = np.cumsum(lengths) - lengths
    after = np.where(ends, 1.0, np.append(products[1:], 1.0))  # product of the discounts of later rows
    backward, whole = np.add.reduceat(rewards * after, starts), products[starts]
    return np.divide(backward, 1 - whole, out=np.zeros(len(starts)), where=whole < 1)


def require_returns(
    stored: Array, rewards: Floats, ends: Flags, terminated: Flags, discounts: float | Floats, named: str
) -> None:
    """Raises DatasetError for stored returns-to-go that are not those of these discounts, `named` in the message."""
    wrong, derived = differing_returns(stored, rewards, ends, terminated, discounts)
    if not wrong.any():
        return
    row = int(wrong.argmax())
    is_undiscounted = not differing_returns(stored, rewards, ends, terminated, 1.0)[0].any()
    raise DatasetError(
        f"the column returns_to_go {'is undiscounted' if is_undiscounted else 'does not fit the rewards'}: with "
        f"{named}, {int(wrong.sum())} of {len(wrong)} rows differ, and row {row} holds {stored[row]:g} instead of "
        f"{derived[row]:g}",
        "leave the column out with --columns returns_to_go=, then it is derived from the rewards",
    )


def differing_returns(
    stored: Array, rewards: Floats, ends: Flags, terminated: Flags, gamma: float | Floats
) -> tuple[Flags, Floats]:
    """Flags of rows whose stored returns-to-go are wrong, and the derived ones.

    Accepted are the derived ones, and the sums that end where a truncated episode was cut.
    """
    derived, cut = (returns_to_go(rewards, ends, flags, gamma) for flags in (terminated, ends))
    rounding = 1e-4 * float(np.abs(derived).max())
    same = (np.isclose(stored, each, rtol=1e-3, atol=rounding) for each in (derived, cut))
    return ~np.logical_or(*same), derived
