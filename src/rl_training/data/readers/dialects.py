"""Detects how a CSV file separates its cells and writes its decimals."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO

from rl_training.data.readers.options import AUTO, DIALECTS, WORDS, Dialect

SAMPLE = 100  # rows
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+,\d+(e[-+]?\d+)?\s*", re.IGNORECASE)


def open_text(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", newline="", encoding="utf-8-sig")
    return path.open(newline="", encoding="utf-8-sig")


def detect_dialect(path: Path, name: str) -> Dialect:
    """Returns the named dialect, or finds it in the header and the first rows."""
    with open_text(path) as file:
        sample = list(islice(file, SAMPLE))
    if name != AUTO:
        return DIALECTS[name]
    found = {mark: len(next(csv.reader(sample, delimiter=mark), [])) for mark in WORDS}
    delimiter = max(found, key=lambda mark: (found[mark], mark == ","))
    cells = (cell for row in islice(csv.reader(sample, delimiter=delimiter), 1, None) for cell in row)
    decimal = "," if delimiter != "," and any(map(_DECIMAL_COMMA.fullmatch, cells)) else "."
    return Dialect(delimiter, decimal)


def read_header(path: Path, dialect: Dialect) -> tuple[list[str], int]:
    """The names of the columns, and the lines of the header: names in quotes may have line breaks."""
    with open_text(path) as file:
        reader = csv.reader(file, delimiter=dialect.delimiter)
        header = [name.strip() for name in next(reader, [])]
    require_single(header, str(path))
    return header, reader.line_num


def require_single(names: Sequence[str], source: str) -> None:
    """Raises ValueError if two columns have the same name."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{source} has {names.count(twice)} columns named {twice!r}; rename all but one")


def cell_rows(file: IO[str], dialect: Dialect, width: int, path: Path) -> Iterator[list[str]]:
    """The rows below the header; blank lines are skipped."""
    reader = csv.reader(file, delimiter=dialect.delimiter)
    next(reader, None)
    for number, row in enumerate(reader):
        if len(row) == width:
            yield row
        elif row:
            raise ValueError(
                f"{path}: row {number} has {len(row)} cells, the header has {width}; complete the row, or set the "
                "separators with --csv-dialect"
            )


def columns_of(rows: Sequence[Sequence[str]], header: Sequence[str]) -> dict[str, Sequence[str]]:
    return dict(zip(header, zip(*rows, strict=True), strict=True))
