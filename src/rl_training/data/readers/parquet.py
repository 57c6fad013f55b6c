"""Transitions from Parquet files with columns of numbers or lists of numbers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.data.extras import import_arrow, import_parquet
from rl_training.data.readers.csv import arrow_cells, arrow_kind
from rl_training.data.readers.options import TableOptions
from rl_training.data.readers.plan import Table
from rl_training.types import Array, Arrays, EnvSpec

ROWS = 2**13  # per batch


@contextmanager
def parquet_table(path: Path, options: TableOptions) -> Iterator[Table]:
    arrow = import_arrow()
    try:
        # With pre_buffer, all row groups would be held in memory until the last is read.
        file = import_parquet().ParquetFile(path, pre_buffer=False, buffer_size=2**16)
    except (arrow.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path} is not a readable Parquet file: {error}") from error
    with file:
        text = (file.schema_arrow.metadata or {}).get(b"rl_training.spec")
        spec = None if text is None else EnvSpec.from_json(json.loads(text))
        kinds = {each.name: _kind(arrow, each.type) for each in file.schema_arrow}

        def batches(names: Sequence[str]) -> Iterator[Arrays]:
            for batch in file.iter_batches(ROWS, columns=list(names), use_threads=False):
                columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                yield {name: _cells(columns[name], kinds[name], f"{path}: column {name!r}") for name in names}

        stored, rows = file.schema_arrow.names, file.metadata.num_rows
        yield Table(path, stored, kinds, rows, batches, spec)


def _cells(column: Any, kind: str, name: str) -> Array:
    is_plain = str(column.type).startswith(("time", "bool"))  # also the time of the day
    return arrow_cells(column) if is_plain or kind in ("text", "time", "empty") else to_array(column, name)


def to_array(column: Any, name: str, space: Mapping[str, Any] | None = None) -> Array:
    """Converts an Arrow array to NumPy; lists have equal lengths and become further axes. Missing cells are NaN."""
    is_list = hasattr(column, "flatten") and hasattr(column.type, "value_type")
    if 0 < column.null_count < len(column) and (is_list or str(column.type) == "bool"):
        return _with_gaps(column, name)
    shape = [len(column)]
    while hasattr(column, "flatten") and hasattr(column.type, "value_type"):
        inner = column.flatten()
        if column.null_count or len(inner) % max(len(column), 1) or _ragged(column):
            raise ValueError(f"{name} has lists of different lengths; leave it out with --columns NAME=, or pad them")
        shape.append(len(inner) // max(len(column), 1))
        column = inner
    if str(column.type).startswith("decimal"):
        column = column.cast("float64")
    values: Array = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "O":
        raise TypeError(f"{name} must hold numbers, got {column.type} with {column.null_count} empty entries")
    if space and space.get("type") == "Box":
        shape[1:] = space["shape"]
    return np.array(values.reshape(shape))


def _with_gaps(column: Any, name: str) -> Array:
    values = to_array(column.drop_null(), name)
    found = np.full((len(column), *values.shape[1:]), np.nan)
    found[np.asarray(column.is_valid())] = values
    return found


def _ragged(column: Any) -> bool:
    return hasattr(column, "value_lengths") and len(set(column.value_lengths().unique().to_pylist())) > 1


def _kind(arrow: Any, kind: Any) -> str:
    """The kind of a column; decimals and lists of numbers are numbers, and dictionaries of text are text."""
    inner = kind
    while hasattr(inner, "value_type"):
        inner = inner.value_type
    found = arrow_kind(arrow, inner)
    return found if found == "number" or inner is kind or arrow.types.is_dictionary(kind) else "other"
