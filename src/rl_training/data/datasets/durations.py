"""Uneven time steps: durations of transitions from a time column, and the discounts gamma ** (duration / unit)."""

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from rl_training.data.datasets.validation import DatasetError
from rl_training.types import Array

TIME, DURATIONS = "time", "durations"  # columns: when a row was recorded, and the time to its next observation


def durations_of(times: Array, ends: Array) -> npt.NDArray[np.float32]:
    """Time from each row to the next one; the last row of an episode gets the median of the others."""
    if times.size != len(times):
        raise ValueError(f"the time must be one column of numbers, got rows of shape {times.shape[1:]}")
    # Differences are taken in float64 or int64: float32 resolves Unix time to two minutes.
    durations = np.zeros(len(times), np.float32)
    durations[:-1] = np.diff(times.reshape(-1))
    known = ~ends
    known[-1] = False
    durations[~known] = np.median(durations[known]) if known.any() else 0
    return durations


def require_same_durations(stored: Array, found: Array, times: Array, ends: Array, where: str) -> None:
    """Raises DatasetError if the durations of a file are those of another time column."""
    inside = ~ends
    inside[-1] = False
    differs = ~np.isclose(stored.reshape(-1), found, rtol=1e-3, atol=1e-5) & inside
    if times.dtype != np.float32 and differs.any():  # float32 is too coarse to compare
        row = int(differs.argmax())
        raise DatasetError(
            f"{where} steps by {found[row]:g} in row {row}, but the column 'durations' has {stored.reshape(-1)[row]:g}",
            "use the time with --columns durations=, or the durations with --columns durations=durations",
        )


def require_durations(columns: Collection[str]) -> None:
    if DURATIONS not in columns:
        raise ValueError(
            "discounts by time need the time of each row; name its column with --columns time=NAME, or that of the "
            "time to the next row with --columns durations=NAME"
        )


def discount_steps(durations: Array, unit: float | None) -> npt.NDArray[np.float32]:
    """Durations in steps of gamma; raises DatasetError for durations that are not positive, or without a unit."""
    wrong = ~(durations > 0)
    if wrong.any():
        first = int(wrong.argmax())
        raise DatasetError(
            f"the time to the next row must be positive, but it is {durations[first]:g} in row {first} (and "
            f"{int(wrong.sum()) - 1} others of {len(durations)})",
            "sort the rows of each episode by time, remove repeated rows, or name the episodes with --columns "
            "episodes=NAME",
        )
    median = float(np.median(durations))
    if unit is None:
        raise DatasetError(
            "discount_time needs time_unit, the time that gamma discounts as one step",
            f"the median time step of the data is {median:g}: set time_unit={median:g}",
        )
    return (durations.astype(np.float64) / unit).astype(np.float32)
