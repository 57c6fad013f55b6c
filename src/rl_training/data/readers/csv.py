"""Transitions from CSV files with a header: numbers, categories, flags and timestamps, also compressed (.csv.gz)."""

from __future__ import annotations

import codecs
import gzip
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.data.extras import import_arrow, import_arrow_csv
from rl_training.data.readers import cells
from rl_training.data.readers.dialects import cell_rows, columns_of, detect_dialect, open_text, read_header
from rl_training.data.readers.options import Dialect, TableOptions
from rl_training.data.readers.plan import Table
from rl_training.data.words import MISSING
from rl_training.types import Array, Arrays

ROWS = 2**12  # per batch
ARROW_ROWS = 2**16


@contextmanager
def csv_table(path: Path, options: TableOptions) -> Iterator[Table]:
    try:
        dialect = detect_dialect(path, options.csv_dialect)
        header, lines = read_header(path, dialect)
        yield _arrow_table(path, header, lines, dialect) or _plain_table(path, header, dialect)
    except UnicodeDecodeError as error:
        encoding = "UTF-16" if error.object[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "CP1252"
        raise ValueError(
            f"{path} is not UTF-8 text: {error.reason} at byte {error.start}; convert it, for example with "
            f"`iconv -f {encoding} -t UTF-8 {shlex.quote(str(path))} > utf8.csv`"
        ) from error


def _table(path: Path, dialect: Dialect, **contents: Any) -> Table:
    notes = () if dialect == Dialect(",") else (dialect.text,)
    return Table(path, notes=notes, **contents)


def _arrow_table(path: Path, header: Sequence[str], lines: int, dialect: Dialect) -> Table | None:
    """Reads with pyarrow; None without pyarrow, or if it refuses the file, whose fault the plain reader names."""
    try:
        arrow, reader = import_arrow(), import_arrow_csv()
    except ImportError:
        return None
    try:
        stored = reader.read_csv(
            path, reader.ReadOptions(column_names=list(header), skip_rows=lines),
            reader.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True),
            reader.ConvertOptions(null_values=list(MISSING), strings_can_be_null=True,
                                  decimal_point=dialect.decimal, true_values=["true", "True", "TRUE"],
                                  false_values=["false", "False", "FALSE"]),
        )  # fmt: skip
    except arrow.ArrowInvalid:
        return None
    if not stored.num_rows:
        return None

    def batches(names: Sequence[str]) -> Iterator[Arrays]:
        for batch in stored.select(list(names)).to_batches(ARROW_ROWS):
            yield {name: arrow_cells(column) for name, column in zip(names, batch.columns, strict=True)}

    kinds = {name: arrow_kind(arrow, each.type) for name, each in zip(header, stored.columns, strict=True)}
    return _table(path, dialect, names=list(header), kinds=kinds, rows=stored.num_rows, batches=batches)


def arrow_kind(arrow: Any, kind: Any) -> str:
    """number, text or time; empty if all cells are missing, other for anything else."""
    types = arrow.types
    if types.is_timestamp(kind) or types.is_date(kind):
        return "time"
    if types.is_string(kind) or types.is_large_string(kind):
        return "text"
    numbers = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    return "number" if any(check(kind) for check in numbers) else "empty" if types.is_null(kind) else "other"


def arrow_cells(column: Any) -> Array:
    """Converts a column of numbers, text or timestamps to NumPy; numbers that are missing are NaN, booleans None."""
    kind = str(column.type)
    if kind == "null":
        return np.full(len(column), np.nan)
    if hasattr(column, "dictionary_decode"):
        column = column.dictionary_decode()
    values: Array = column.to_numpy(zero_copy_only=False)
    return values


def _plain_table(path: Path, header: Sequence[str], dialect: Dialect) -> Table:
    with open_text(path) as file:
        first = list(islice(cell_rows(file, dialect, len(header), path), ROWS))
    if not first:
        raise ValueError(f"{path} is empty: it has no rows below a header")
    columns = columns_of(first, header)
    kinds = {name: _kind(column, dialect) for name, column in columns.items()}
    booleans = {name for name, column in columns.items() if _are_booleans(column)}
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as raw:
        lines = sum(block.count(b"\n") for block in iter(lambda: raw.read(2**20), b"")) + 1
    batches = partial(_plain_batches, path, list(header), {**kinds, **dict.fromkeys(booleans, "boolean")}, dialect)
    return _table(path, dialect, names=list(header), kinds=kinds, rows=lines, batches=batches)


def _are_booleans(column: Sequence[str]) -> bool:
    present = [cell for cell in column if cell.strip() not in MISSING]
    return bool(present) and cells.are_booleans(present)


def _kind(column: Sequence[str], dialect: Dialect) -> str:
    present = [cell for cell in column if cell.strip() not in MISSING]
    if not present:
        return "empty"
    if all(map(cells.is_time, present)):
        return "time"
    return "number" if all(cells.is_number(cell, dialect.decimal) for cell in present) else "text"


def _plain_batches(
    path: Path, header: list[str], kinds: Mapping[str, str], dialect: Dialect, names: Sequence[str]
) -> Iterator[Arrays]:
    with open_text(path) as file:
        rows, start = cell_rows(file, dialect, len(header), path), 0
        while batch := list(islice(rows, ROWS)):
            columns = columns_of(batch, header)
            yield {name: _plain_cells(columns[name], kinds[name], f"{path}: column {name!r}", start, dialect)
                   for name in names}  # fmt: skip
            start += len(batch)


def _plain_cells(column: Sequence[str], kind: str, name: str, start: int, dialect: Dialect) -> Array:
    if kind == "time":
        return cells.to_times(column, name, start)
    if kind == "text":
        return np.array(column, object)
    flags = cells.to_booleans(column) if kind == "boolean" else None
    return cells.to_numbers(column, name, start, dialect.decimal) if flags is None else flags
