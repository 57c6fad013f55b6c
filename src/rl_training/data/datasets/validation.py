"""What is surely wrong with a dataset's columns: refused, with the column, the row and what would accept it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence, Set, Sized

import numpy as np

from rl_training.types import Array, Arrays, EnvSpec

REPAIRABLE = ("nan", "out_of_range", "no_episode_end", "crossing")  # faults that can be mended instead of refused

_BLOCK = 2**18  # numbers looked at together, so that temporaries stay small beside the columns
_SIDE_BY_SIDE = 64


class DatasetError(ValueError):
    """Data that cannot be trained on as it is: what is wrong, and what would mend it."""

    def __init__(self, text: str, fix: str = "") -> None:
        super().__init__(f"{text}; {fix}" if fix else text)
        self.text, self.fix = text, fix


def check_allow(allow: Collection[str]) -> None:
    unknown = [name for name in allow if name not in REPAIRABLE]
    if unknown:
        raise ValueError(f"allow must name faults among {', '.join(REPAIRABLE)}, got {unknown[0]!r}")


def require_columns(columns: Mapping[str, object], names: Sequence[str]) -> None:
    missing = [name for name in names if name not in columns]
    if missing:
        raise ValueError(f"a dataset needs the columns {list(names)}, missing {missing}, got {list(columns)}")


def require_box_observations(spec: EnvSpec, env_id: object = "the environment") -> None:
    if spec.obs_parts:
        names = ", ".join(part.name for part in spec.obs_parts)
        raise TypeError(
            f"a dataset has one Box of observations, and {env_id} shows a Dict of {names}: wrap it so that it shows "
            "one, as gymnasium.wrappers.FlattenObservation does"
        )


def require_equal_lengths(columns: Mapping[str, Sized]) -> None:
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"all columns must have the same length, got {lengths}")
    if not any(lengths.values()):
        raise ValueError("the dataset is empty: its columns have no rows")


def require_finite(columns: Mapping[str, Array]) -> None:
    for name, column in columns.items():
        wrong = find_not_finite(column)
        if wrong.any():
            raise DatasetError(
                f"column {name!r} is NaN or infinite in {wrong.sum()} of {len(column)} rows, "
                f"the first is row {wrong.argmax()}",
                "--allow nan leaves such rows out",
            )


def require_flags(columns: Mapping[str, Array]) -> None:
    for name in ("dones", "truncated"):
        wrong = (columns[name] != 0) & (columns[name] != 1)
        if wrong.any():
            first = int(wrong.argmax())
            raise ValueError(f"column {name!r} must hold 0 or 1, row {first} holds {columns[name][first]:g}")


def require_episode_ends(columns: Arrays, told: Set[str]) -> None:
    """Ends count that the data tell themselves; where no such column is `told`, they were only guessed from jumps."""
    dones, truncated = columns["dones"], columns["truncated"]
    if dones.any() or (truncated.any() and told & {"dones", "truncated", "episodes"}):
        return
    if truncated.any():
        raise DatasetError(
            f"no column tells where episodes end; {int(truncated.sum())} ends are guessed, from jumps in next_obs and "
            "from where files end",
            "name a column that tells with --columns dones=NAME or --columns truncated=NAME, or accept the guess with "
            "--allow no_episode_end",
        )
    raise DatasetError(
        "no row ends an episode (dones and truncated are all 0 or missing)",
        f"mark the last row of each, or say that the {len(dones)} rows are one with --allow no_episode_end",
    )


def require_no_crossing(crossing: Array) -> None:
    if crossing.any():
        raise DatasetError(
            f"next_obs does not fit the following row in {crossing.sum()} of {len(crossing)} rows, the first is "
            f"row {crossing.argmax()}: it leads into another episode, or jumps where neither dones nor "
            "truncated ends one",
            "--allow crossing cuts the episodes there",
        )


def find_not_finite(column: Array) -> Array:
    """Per row: whether it holds NaN or infinity."""
    wrong = np.zeros(len(column), bool)
    if column.dtype.kind == "f":
        for rows in blocks(column):
            finite = np.isfinite(column[rows])
            if not finite.all():
                wrong[rows] = ~finite.reshape(len(finite), -1).all(1)
    return wrong


def find_breaks(obs: Array, next_obs: Array) -> Array:
    """Per row but the last: whether the following row starts somewhere else than this one led to."""
    breaks = np.zeros(max(len(obs) - 1, 0), bool)
    for rows in blocks(obs[1:]):
        breaks[rows] = ~same_rows(next_obs[:-1][rows], obs[1:][rows])
    return breaks


def find_crossings(obs: Array, next_obs: Array, dones: Array, truncated: Array) -> tuple[Array, Array]:
    """Per row: whether it jumps though its episode goes on, and whether it was cut and yet leads to the next start."""
    dones, truncated = dones != 0, truncated != 0
    jumps, bridges = np.zeros_like(dones), np.zeros_like(dones)
    breaks = find_breaks(obs, next_obs)
    jumps[:-1] = breaks & ~(dones | truncated)[:-1]
    rows = np.flatnonzero((truncated & ~dones)[:-1] & ~breaks)
    bridges[rows] = ~same_rows(next_obs[rows], obs[rows])  # where nothing moves, the next start says nothing
    return jumps, bridges


def same_rows(a: Array, b: Array) -> Array:
    """Per row: whether the two are the same observation; some files keep them in different precision."""
    same: Array = (a == b).reshape(len(a), math.prod(a.shape[1:])).all(1)
    if a.dtype.kind == "f" and not same.all():
        rows = np.flatnonzero(~same)
        close = np.isclose(a[rows], b[rows].astype(a.dtype), rtol=1e-4, atol=1e-5)
        same[rows] = close.reshape(len(rows), math.prod(a.shape[1:])).all(1)
    return same


def reduce_rows(function: np.ufunc, rows: Array) -> Array:
    """`function.reduce` of short rows, many of them side by side: numpy has one loop for each row it is given."""
    whole = len(rows) // _SIDE_BY_SIDE * _SIDE_BY_SIDE
    if whole:
        wide = function.reduce(rows[:whole].reshape(whole // _SIDE_BY_SIDE, -1), 0)
        rows = np.concatenate([wide.reshape(_SIDE_BY_SIDE, -1), rows[whole:]])
    return function.reduce(rows, 0)


def blocks(column: Array) -> Iterator[slice]:
    """Slices over all rows, each of few enough to be copied."""
    length = len(column)
    step = max(1, _BLOCK * length // max(column.size, 1))
    return (slice(start, min(start + step, length)) for start in range(0, length, step))
