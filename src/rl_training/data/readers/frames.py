"""Transitions from pandas and polars DataFrames; neither package is imported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

import numpy as np

from rl_training.data.readers.dialects import require_single
from rl_training.data.readers.names import Names, as_patterns
from rl_training.data.readers.options import TableOptions
from rl_training.data.readers.plan import Table
from rl_training.data.readers.rewards import with_rewards
from rl_training.data.readers.rows import StoredColumns
from rl_training.data.readers.tables import read_table
from rl_training.data.readers.timing import from_first_time
from rl_training.types import Array, Arrays


@np.errstate(over="ignore")  # as in read_columns
def read_frame(frame: Any, given: Mapping[str, Names | None], options: TableOptions) -> StoredColumns:
    names = [str(name) for name in frame.columns]
    require_single(names, "the frame")
    if not len(frame):
        raise ValueError("the frame is empty: it has no rows")
    columns = {str(name): _cells(frame[name]) for name in frame.columns}
    kinds = {name: _kind(column) for name, column in columns.items()}

    def batches(wanted: Sequence[str]) -> Iterator[Arrays]:
        yield {name: columns[name] for name in wanted}

    chosen = as_patterns(given)
    stored = read_table(Table("the frame", names, kinds, len(frame), batches), chosen, options)
    return with_rewards(from_first_time(stored), chosen)


def _cells(series: Any) -> Array:
    """NumPy cells: numbers with NaN for missing values, datetime64, or objects, also booleans with None."""
    values: Array = np.asarray(series)
    if values.dtype.kind in "fiubM":
        return values
    if str(series.dtype).startswith("datetime64"):  # pandas with a time zone
        return np.asarray(series.dt.tz_convert("UTC").dt.tz_localize(None))
    if values.dtype.kind == "m":
        return values / np.timedelta64(1, "s")
    values = values.astype(object)
    missing = np.asarray(series.isna() if hasattr(series, "isna") else series.is_null(), bool)
    present = values[~missing]
    if len(present) == len(values) and (whole := _integers(present)) is not None:
        return whole
    if (
        len(present)
        and not _are_booleans(present)
        and all(isinstance(value, (bool, int, float, Decimal, np.number, np.bool_)) for value in present)
    ):
        numbers = np.full(len(values), np.nan)
        numbers[~missing] = present.astype(np.float64)
        return numbers
    values[missing] = None
    return values


def _integers(values: Array) -> Array | None:
    """Objects that are all integers or all booleans, as their NumPy type; None for others."""
    if _are_booleans(values):
        return values.astype(bool)
    if all(isinstance(value, int | np.integer) and not isinstance(value, bool) for value in values):
        with suppress(OverflowError):
            return values.astype(np.int64)
    return None


def _are_booleans(values: Iterable[object]) -> bool:
    return all(isinstance(value, bool | np.bool_) for value in values)


def _kind(column: Array) -> str:
    if column.dtype.kind == "M":
        return "time"
    if column.dtype.kind != "O":
        return "number"
    present = [value for value in column if value is not None]
    if not present:
        return "empty"
    if _are_booleans(present):
        return "number"
    return "text" if all(isinstance(value, str) for value in present) else "other"
