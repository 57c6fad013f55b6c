"""Cells as words: missing cells, and the values of categories."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from rl_training.types import Array

MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "null", "NULL")
BOOLEANS = {"True": "1", "False": "0", "1": "True", "0": "False"}  # words of one value
DECIMAL = re.compile(r"-?\d*\.?\d+|-?\d+\.", re.ASCII)
DIGITS = 15  # every decimal number of so many digits is one float64, and has this word again


def to_words(column: Array) -> list[str | None]:
    """The values as text, None where missing; whole numbers are written without a decimal point."""
    if column.dtype.kind in "fiub":
        distinct, places = np.unique(column, return_inverse=True)
        if len(distinct) < len(column):  # as in categories
            return np.array(to_words(distinct), object)[places.reshape(-1)].tolist()
    if column.dtype.kind in "OU":
        return [None if is_missing(each) else _word(each) for each in column]
    is_short = column.dtype in (np.float16, np.float32)  # as float64, these have more digits
    numbers = column if is_short else column.tolist()
    return [None if each != each else _word(each) for each in numbers]


def _word(value: object) -> str:
    if not isinstance(value, float | np.floating):
        return str(value).strip()
    if value.is_integer():
        return f"{int(value)}"
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else str(value)


def plain_word(word: str) -> str:
    """Writes a number as `to_words` does: 007 and 7.0 as 7. Other text is returned as it is, also 1e3 or 1_000."""
    if word.isdecimal():  # of any size
        return word.lstrip("0") or "0"
    return _word(float(word)) if DECIMAL.fullmatch(word) else word


def is_missing(value: object) -> bool:
    return value is None or value != value or str(value).strip() in MISSING


def category_words(column: Array, values: Sequence[str]) -> list[str | None]:
    """The words of a column, as `values` has them: a number may be written in another way there, such as 0.50.

    Booleans may be 0 and 1 there, and 0 and 1 booleans.
    """
    words = to_words(column)
    if {*values} >= {*words} - {None}:
        return words
    same = {BOOLEANS[value]: value for value in values if value in BOOLEANS}
    if column.dtype.kind in "fiu":
        same |= {plain_word(value): value for value in reversed(values)}
    same |= {value: value for value in values}
    return [None if word is None else same.get(word, word) for word in words]


def to_codes(column: Array, values: Sequence[str], name: str, start: int) -> Array:
    """Positions of the cells in `values`, floats with NaN if some are missing; `start` is the first row."""
    codes: dict[str | None, float] = {value: code for code, value in enumerate(values)}
    codes[None] = np.nan
    words = category_words(column, values)
    try:
        found = np.array([codes[word] for word in words])
    except KeyError:
        row, word = next((row, word) for row, word in enumerate(words) if word not in codes)
        raise ValueError(
            f"{name} holds {word!r} in row {start + row}, which is not among its categories {', '.join(values)}; "
            "list all of them, in order, with --categories COLUMN=A,B,C before training, or remove these rows"
        ) from None
    return found if None in words else found.astype(np.int64)


def one_hot(codes: Array, count: int) -> Array:
    """[rows, count]; a row is NaN where the code is."""
    rows = (codes[:, None] == np.arange(count)).astype(np.float32)
    rows[np.isnan(codes)] = np.nan
    return rows
