"""Transitions from CSV files with a header and numbers."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from rl_training.data.readers.rows import Batches, StoredColumns, episode_encoder, read_table
from rl_training.types import Array

ROWS = 2**12  # per batch
WORDS = {"": np.nan, "true": 1.0, "false": 0.0}  # accepted beside numbers


def read_csv(path: Path, given: Mapping[str, str] | None) -> StoredColumns:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = _header(reader, path)
            first = next(_rows(reader, len(header), path), None)
        if first is None:
            raise ValueError(f"{path} is empty: it has no rows below a header")
        with path.open("rb") as raw:
            lines = sum(block.count(b"\n") for block in iter(lambda: raw.read(2**20), b""))
        numeric = [name for name, cell in zip(header, first, strict=True) if cell and _is_number(cell)]
        return read_table(path, header, numeric, partial(_batches, path, header), given, rows=lines)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def _header(reader: Iterator[list[str]], path: Path) -> list[str]:
    header = next(reader, [])
    if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
        raise ValueError(f"{path} must separate cells by commas; its first line is {header[0]!r}")
    if len(set(header)) < len(header):
        raise ValueError(f"{path} has two columns of the same name: {header}")
    return header


def _batches(path: Path, header: Sequence[str], names: Sequence[str], ids: str | None) -> Batches:
    encode = episode_encoder()
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        next(reader)
        rows, number = _rows(reader, len(header), path), 0
        while batch := list(islice(rows, ROWS)):
            cells = dict(zip(header, zip(*batch, strict=True), strict=True))
            yield {
                name: encode(cells[name]) if name == ids else _numbers(cells[name], f"{path}: column {name!r}", number)
                for name in names
            }
            number += len(batch)


def _rows(reader: Iterator[list[str]], width: int, path: Path) -> Iterator[list[str]]:
    for number, row in enumerate(reader):
        if len(row) == width:
            yield row
        elif row:  # blank lines are skipped
            raise ValueError(f"{path}: row {number} has {len(row)} cells, the header has {width}")


def _numbers(cells: Sequence[str], name: str, start: int) -> Array:
    for dtype in (np.int64, np.float64):  # integers may be Discrete actions
        try:
            return np.array(cells, dtype)
        except (ValueError, OverflowError):
            continue
    return np.array([_number(cell, name, start + row) for row, cell in enumerate(cells)])


def _number(cell: str, name: str, row: int) -> float:
    word = cell.strip().lower()
    try:
        return WORDS[word] if word in WORDS else float(word)
    except ValueError:
        raise TypeError(f"{name} must hold numbers, but row {row} holds {cell!r}") from None


def _is_number(cell: str) -> bool:
    try:
        _number(cell, "", 0)
    except TypeError:
        return False
    return True
