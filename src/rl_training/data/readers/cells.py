"""Cells of a table: text to numbers, missing values, categories and timestamps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from decimal import Decimal

import numpy as np

from rl_training.data.readers.dates import UnclearDates, order_of, to_iso
from rl_training.data.words import MISSING
from rl_training.types import Array

FLAGS = {"true": 1.0, "false": 0.0}  # accepted beside numbers
FLAG_WORDS = {**FLAGS, "yes": 1.0, "no": 0.0, "y": 1.0, "n": 0.0, "t": 1.0, "f": 0.0, "1": 1.0, "0": 0.0}
MOST_CATEGORIES = 1000
_NUMBERS = (int, float, Decimal, np.number, np.bool_, type(None))
# 1,234.50; whether 1,234 is 1.234 is not known
THOUSANDS = re.compile(r"[+-]?\d{1,3}([,. '\u2019\u00a0]\d{3})+([.,]\d+)?")
# $ 5, 5 %, 5 kW
WITH_UNIT = re.compile(r"[$€£<>~]\s*[+-]?\d+([.,]\d+)?|[+-]?\d+([.,]\d+)?\s*[^\d\s.,:;/-][^\d\s]{0,4}")
_CLOCK = re.compile(r"([^.,+]*:\d\d)(?:[.,](\d+))?(?:([+-]\d\d)(?::?(\d\d))?)?")  # seconds, fraction, zone


def from_objects(column: Array, where: str, start: int) -> Array:
    """Converts Python numbers such as decimals, or lists of numbers to [rows, entries]; None is missing."""
    present = [value for value in column if value is not None]
    if present and all(isinstance(value, (list, tuple, np.ndarray)) for value in present):
        try:
            missing = np.full(np.shape(present[0]), np.nan)
            return np.array([missing if value is None else value for value in column])
        except ValueError:
            raise ValueError(f"{where} has lists of different lengths") from None
    wrong = next((row for row, value in enumerate(column) if not isinstance(value, _NUMBERS)), None)
    if wrong is not None:
        raise not_a_number(where, start + wrong, column[wrong])
    return np.array([np.nan if value is None else float(value) for value in column])


def to_numbers(cells: Sequence[str], name: str, start: int, decimal: str = ".") -> Array:
    """Converts text to integers if all cells are, else to floats with NaN for missing cells."""
    plain = cells if decimal == "." else [cell.replace(".", "?").replace(decimal, ".") for cell in cells]
    for dtype in (np.int64, np.float64):  # integers may be Discrete actions
        try:
            return np.array(plain, dtype)
        except (ValueError, OverflowError):
            continue
    return np.array([_number(cell, name, start + row, decimal) for row, cell in enumerate(cells)])


def are_booleans(cells: Sequence[str]) -> bool:
    return {cell.strip().lower() for cell in cells} <= FLAGS.keys()


def to_booleans(cells: Sequence[str]) -> Array | None:
    """Converts true and false, and 0 and 1, to booleans, None for missing cells; None if there is other text."""
    words = [None if cell.strip() in MISSING else cell.strip().lower() for cell in cells]
    values = {**FLAGS, "0": 0.0, "1": 1.0}
    if not values.keys() >= {*words} - {None}:
        return None
    return np.array([None if word is None else bool(values[word]) for word in words], object)


def is_number(cell: str, decimal: str = ".") -> bool:
    try:
        _number(cell, "", 0, decimal)
    except TypeError:
        return False
    return True


def _number(cell: str, name: str, row: int, decimal: str) -> float:
    word = cell.strip()
    if word in MISSING:
        return np.nan
    plain = word if decimal == "." else word.replace(".", "?").replace(decimal, ".")  # "." would separate thousands
    try:
        return FLAGS[word.lower()] if word.lower() in FLAGS else float(plain)
    except ValueError:
        raise not_a_number(name, row, cell) from None


def not_a_number(name: str, row: int, cell: object) -> TypeError:
    column = name.rpartition("column ")[2].strip("'")
    names = f"if its values are names, read it as a category with --categories {column}, or leave it out"
    option = f"; {names}; leave cells empty where a value is missing" if column else ""
    if WITH_UNIT.fullmatch(str(cell).strip()):
        option = "; write numbers without units" + (f"; {names}" if column else "")
    if THOUSANDS.fullmatch(str(cell).strip()):
        option = "; write numbers without thousands separators, for example with pandas.read_csv(FILE, thousands=',')"
    return TypeError(f"{name} must hold numbers, but row {row} holds {cell!r}{option}")


def to_flags(words: Sequence[str | None], column: str, where: str, marked: str, start: int) -> Array:
    """1 for yes and 0 for no, NaN where missing. Raises TypeError for other words, whose order must be given."""
    flags = [np.nan if word is None else FLAG_WORDS.get(word.lower()) for word in words]
    if None not in flags:
        return np.array(flags, np.float64)
    wrong = flags.index(None)
    found = sorted({word for word in words if word is not None})
    option = f"--categories {column}="
    fix = f"list two values with {option}NO,YES, where YES means {marked}"
    if len(found) == 2:
        marks = {word: f"{option}{other},{word}" for word, other in (found, found[::-1])}
        fix = "use " + ", or ".join(f"{order} if {word!r} means {marked}" for word, order in marks.items())
    row = f"row {start + wrong} holds {words[wrong]!r}"
    raise TypeError(f"{where} must hold 0 or 1, true or false, or yes or no, but {row}; {fix}")


def is_time(cell: str, order: str = "") -> bool:
    text = to_iso(cell.strip(), order)
    return len(text) >= len("2026-01-31") and text[:4].isdecimal() and _time(text) is not None


def to_times(cells: Iterable[str | None], name: str, start: int, order: str = "") -> Array:
    """Converts text to datetime64: ISO 8601, or dates in an order of day and month. Times without a zone are UTC."""
    found = np.empty(len(cells := list(cells)), "datetime64[us]")
    for row, cell in enumerate(cells):
        word = "" if cell is None else str(cell).strip()
        time = None if word in MISSING else _time(to_iso(word, order))
        if time is None and word not in MISSING:
            unclear = not (order or order_of([word]))
            reason = ", which may have the day or the month first" if unclear else ""
            raise (UnclearDates if unclear else ValueError)(
                f"{name} must hold timestamps such as 2026-01-31T12:30:00, but row {start + row} holds {word!r}{reason}"
                "; rewrite them, or leave the column out with --columns time="
            )
        found[row] = np.datetime64("NaT") if time is None else time
    return found


def _time(cell: str) -> datetime | None:
    text = cell.strip()
    text = text[:-1] + "+00:00" if text.endswith("Z") else text
    if match := _CLOCK.fullmatch(text):  # Python 3.10 reads fractions of 3 or 6 digits, and zones with minutes
        clock, fraction, hours, minutes = match.groups()
        text = clock + (f".{fraction[:6]:0<6}" if fraction else "") + (f"{hours}:{minutes or '00'}" if hours else "")
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo is None else time.astimezone(timezone.utc).replace(tzinfo=None)


def seconds(column: Array) -> Array:
    """Seconds since 1970 as float64, NaN where missing; columns of numbers keep their numbers."""
    if column.dtype.kind != "M":  # integers may be nanoseconds, which float64 rounds
        return column.astype(np.int64 if column.dtype.kind in "iu" else np.float64)
    return np.where(np.isnat(column), np.nan, column.astype("datetime64[us]").astype(np.int64) / 1e6)


def sorted_words(words: Iterable[str]) -> list[str]:
    """Sorts by number if all are numbers, else by text."""
    found = sorted(words)  # words of one number, such as True and 1, stay in this order
    return sorted(found, key=lambda word: _number(word, "", 0, ".")) if all(map(is_number, found)) else found
