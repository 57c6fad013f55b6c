"""Validation of dataset columns: errors name the column, the row and the fix. Also repairs that a user may allow."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set, Sized

import numpy as np

from rl_training.types import Array, Arrays, EnvSpec

LEARNED = {  # columns of batches, whose floats are float32; others keep their precision
    "obs", "actions", "rewards", "next_obs", "dones", "truncated", "next_actions", "returns_to_go", "durations",
    "discounts", "discount_steps",
}  # fmt: skip
REPAIRABLE = ("nan", "out_of_range", "no_episode_end", "crossing")  # problems that `allow` can name

_BLOCK = 2**18  # numbers processed at once, to keep temporary arrays small
_ROWS_TOGETHER = 64
_CANDIDATES = 16  # more different observations at the ends of episodes are no coincidence


class DatasetError(ValueError):
    """Data that cannot be trained on: what is wrong, and how to fix it.

    `{row}` in the text stands for the number `row`. `at` replaces it, for example by the row of the file.
    """

    def __init__(self, text: str, fix: str = "", *, row: int | None = None) -> None:
        self.form, self.row, self.fix = text, row, fix
        self.text = text if row is None else text.replace("{row}", str(row))
        super().__init__(f"{self.text}; {fix}" if fix else self.text)

    def at(self, places: Callable[[int], object]) -> DatasetError:
        """The same error with the place of its row, such as the row of the file."""
        if self.row is None:
            return self
        return DatasetError(self.form.replace("{row}", str(places(self.row))), self.fix)


def check_allow(allow: Collection[str]) -> None:
    if unknown := [name for name in allow if name not in REPAIRABLE]:
        raise ValueError(f"allow must be among {', '.join(REPAIRABLE)}, got {unknown[0]!r}")


def require_columns(columns: Mapping[str, object], names: Sequence[str]) -> None:
    if missing := [name for name in names if name not in columns]:
        raise ValueError(f"a dataset needs the columns {list(names)}: {missing} are missing, got {list(columns)}")


def require_rewards(columns: Mapping[str, object]) -> None:
    if "rewards" not in columns:
        raise DatasetError(
            "the file has no rewards",
            "name their column with --columns rewards=NAME, or set every reward with --columns rewards=0, which is "
            "enough for bc and gail; for a task of OGBench, save the arrays of its singletask dataset, which have "
            "rewards",
        )


def require_box_observations(spec: EnvSpec, env_id: object = "the environment") -> None:
    if spec.obs_parts:
        names = ", ".join(part.name for part in spec.obs_parts)
        raise TypeError(
            f"datasets cannot hold images beside other parts, but {env_id} has {names}; keep the vectors with "
            "gymnasium.wrappers.FilterObservation"
        )


def require_equal_lengths(columns: Mapping[str, Sized]) -> None:
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"all columns must have the same length, got {lengths}")
    if not any(lengths.values()):
        raise ValueError("the dataset is empty: its columns have no rows")


def require_finite(
    columns: Mapping[str, Array], positions: Array | None = None, names: Mapping[str, Sequence[str]] | None = None
) -> None:
    """Raises DatasetError for NaN or infinite values.

    `positions` has the row in the file of each row, `names` those of the entries of a column.
    """
    for name, column in columns.items():
        if (wrong := find_not_finite(column)).any():
            found = np.flatnonzero(wrong)
            first = int(found[0] if positions is None else found[positions[found].argmin()])
            entries = _entries(column[wrong], (names or {}).get(name, ()))
            rows = f"{wrong.sum()} of {len(column)} rows, the first is row {{row}}"
            fill = ", or fill in 0 where no reward was given" if name == "rewards" else ""
            fix = f"drop these rows with --allow nan{fill}"
            raise DatasetError(f"column {name!r}{entries} is NaN or infinite in {rows}", fix, row=first)


def _entries(rows: Array, names: Sequence[str]) -> str:
    """The entries of vectors that are not finite, by name if they have one; nothing for single numbers and images."""
    if rows.ndim != 2 or rows.shape[1] == 1:
        return ""
    found = np.flatnonzero(~np.isfinite(rows).all(0)).tolist()
    shown = [names[number] if number < len(names) else str(number) for number in found[:5]]
    return f" ({', '.join(shown)}{', ...' if len(found) > 5 else ''})"


def require_flags(columns: Mapping[str, Array], source: str = "") -> None:
    for name, column in columns.items():
        wrong = (column != 0) & (column != 1)
        if wrong.any():
            first = int(wrong.argmax())
            empty = int(find_not_finite(column).sum())
            fix = f"; {empty} of {len(column)} cells are empty: fill them with 0 or 1" if empty else ""
            raise ValueError(f"{source}column {name!r} must hold 0 or 1, row {first} holds {column[first]:g}{fix}")


def require_binary(columns: Mapping[str, Array], entries: Sequence[int]) -> None:
    """Raises ValueError if these entries of the observations, which are MultiBinary, are neither 0 nor 1."""
    for name in ("obs", "next_obs") if entries else ():
        bits = columns[name][:, entries]
        if (wrong := (bits != 0) & (bits != 1)).any():
            first, entry = (int(each[0]) for each in wrong.nonzero())
            raise ValueError(
                f"{name} of a MultiBinary space must hold 0 or 1, entry {entries[entry]} of row {first} holds "
                f"{bits[first, entry]:g}"
            )


def require_discounts(column: Array) -> None:
    if (wrong := ~((column >= 0) & (column <= 1))).any():
        first = int(wrong.argmax())
        raise DatasetError(
            f"column 'discounts' must be in [0, 1], row {{row}} holds {column[first]:g}",
            "leave it out with --columns discounts=",
            row=first,
        )


def require_episode_ends(columns: Arrays, stored: Set[str]) -> None:
    """Raises DatasetError unless a `stored` column marks an episode end; jumps in next_obs do not count."""
    dones, truncated = columns["dones"], columns["truncated"]
    if dones.any() or (truncated.any() and stored & {"dones", "truncated", "episodes"}):
        return
    if truncated.any():
        raise DatasetError(
            f"no column marks episode ends; {int(truncated.sum())} ends were inferred from jumps in next_obs and the "
            "ends of files",
            "name the column with --columns dones=NAME or --columns truncated=NAME, or accept the inferred ends with "
            "--allow no_episode_end",
        )
    fix = f"mark the last row of each episode, or treat all {len(dones)} rows as one with --allow no_episode_end"
    raise DatasetError("no row ends an episode: dones and truncated are all 0 or missing", fix)


def require_no_crossing(crossing: Array) -> None:
    if crossing.any():
        raise DatasetError(
            f"next_obs does not match the next row in {crossing.sum()} of {len(crossing)} rows, the first is "
            "row {row}: it belongs to another episode, or neither dones nor truncated marks an episode end",
            "split the episodes there with --allow crossing",
            row=int(crossing.argmax()),
        )


def find_not_finite(column: Array) -> Array:
    wrong = np.zeros(len(column), bool)
    if column.dtype.kind == "f":
        for rows in blocks(column):
            finite = np.isfinite(column[rows])
            if not finite.all():
                wrong[rows] = ~finite.reshape(len(finite), -1).all(1)
    return wrong


def find_breaks(obs: Array, next_obs: Array) -> Array:
    """Flags of all rows but the last: whether next_obs differs from the obs of the next row."""
    breaks = np.zeros(max(len(obs) - 1, 0), bool)
    for rows in blocks(obs[1:]):
        breaks[rows] = ~same_rows(next_obs[:-1][rows], obs[1:][rows])
    return breaks


def find_crossings(obs: Array, next_obs: Array, dones: Array, truncated: Array) -> tuple[Array, Array]:
    """Flags of two kinds of rows whose next_obs is wrong: jumps and bridges."""
    dones, truncated = dones != 0, truncated != 0
    jumps, bridges = np.zeros_like(dones), np.zeros_like(dones)
    breaks = find_breaks(obs, next_obs)
    # Jump: next_obs differs from the next row's obs, but the episode has not ended.
    jumps[:-1] = breaks & ~(dones | truncated)[:-1]
    # Bridge: the row is truncated, but its next_obs is the first observation of the next episode.
    rows = np.flatnonzero((truncated & ~dones)[:-1] & ~breaks)
    rows = rows[~same_rows(next_obs[rows], obs[rows])]  # no evidence if obs does not change
    bridges[rows] = ~_recurring(next_obs[rows], next_obs[~(dones | truncated)])
    return jumps, bridges


def _recurring(candidates: Array, inner: Array) -> Array:
    """Flags of candidates that also occur inside episodes, as states of small discrete environments do."""
    flat = candidates.reshape(len(candidates), math.prod(candidates.shape[1:]))
    unique, number = np.unique(flat, axis=0, return_inverse=True)
    recurs = np.zeros(len(unique), bool)
    for index, candidate in enumerate(unique[:_CANDIDATES]):
        recurs[index] = any(
            (inner[rows].reshape(-1, flat.shape[1]) == candidate).all(1).any() for rows in blocks(inner)
        )
    return recurs[number.reshape(-1)]


def drop_nan_rows(columns: Arrays, allow: Collection[str]) -> Arrays:
    """Drops rows with NaN or infinite values if `allow` has "nan", else raises DatasetError."""
    if "nan" not in allow:
        require_finite(columns)
        return columns
    return drop_rows(columns, np.logical_or.reduce([find_not_finite(column) for column in columns.values()]))


def split_crossings(columns: Arrays, allow: Collection[str]) -> Arrays:
    """Splits episodes where next_obs leads elsewhere if `allow` has "crossing", else raises DatasetError."""
    # A row with a jump keeps its next_obs and is marked truncated. A truncated row whose next_obs is the start of the
    # next episode is dropped, because its true next observation is lost.
    jumps, bridges = find_crossings(*(columns[name] for name in ("obs", "next_obs", "dones", "truncated")))
    if "crossing" not in allow:
        require_no_crossing(jumps | bridges)
        return columns
    truncated = np.logical_or(columns["truncated"], jumps).astype(columns["truncated"].dtype)
    return drop_rows({**columns, "truncated": truncated}, bridges)


def drop_rows(columns: Arrays, wrong: Array) -> Arrays:
    """Drops rows, and truncates their episodes before them."""
    if not wrong.any():
        return columns
    if wrong.all():
        raise ValueError(f"no rows are left: all {len(wrong)} would be dropped")
    truncated = columns["truncated"].copy()
    truncated[:-1][wrong[1:] & (columns["dones"][:-1] == 0)] = 1
    return {name: column[~wrong] for name, column in {**columns, "truncated": truncated}.items()}


def same_rows(a: Array, b: Array) -> Array:
    """Flags of the rows with equal observations; floats are compared with a tolerance for mixed precision."""
    same: Array = (a == b).reshape(len(a), math.prod(a.shape[1:])).all(1)
    if a.dtype.kind == "f" and not same.all():
        rows = np.flatnonzero(~same)
        close = np.isclose(a[rows], b[rows].astype(a.dtype), rtol=1e-4, atol=1e-5)
        same[rows] = close.reshape(len(rows), -1).all(1)
    return same


def reduce_rows(function: np.ufunc, rows: Array) -> Array:
    """`function.reduce` over rows; reduces 64 rows at a time, since NumPy runs one slow loop per short row."""
    whole = len(rows) // _ROWS_TOGETHER * _ROWS_TOGETHER
    if whole:
        wide = function.reduce(rows[:whole].reshape(whole // _ROWS_TOGETHER, -1), 0)
        rows = np.concatenate([wide.reshape(_ROWS_TOGETHER, -1), rows[whole:]])
    return function.reduce(rows, 0)


def blocks(column: Array) -> Iterator[slice]:
    length = len(column)
    step = max(1, _BLOCK * length // max(column.size, 1))
    return (slice(start, min(start + step, length)) for start in range(0, length, step))
