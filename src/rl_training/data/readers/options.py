"""Options of tables: the CSV dialect, categories, and the first Discrete action."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rl_training.types import Array, EnvSpec


class Dialect(NamedTuple):
    delimiter: str
    decimal: str = "."

    @property
    def text(self) -> str:
        """Describes the dialect, with its name in --csv-dialect."""
        name = next(name for name, dialect in DIALECTS.items() if dialect == self)
        marks = "commas" if self.decimal == "," else "points"
        return f"cells are separated by {WORDS[self.delimiter]}s and decimals by {marks} (--csv-dialect {name})"


class Numbers(NamedTuple):
    """The lowest and the highest integer of each column of choices."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def from_1(self) -> Array:
        """Flags of the columns that begin with 1."""
        return (np.array(self.low) == 1) & (np.array(self.high) > 1)


WORDS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}
DIALECTS = {word: Dialect(mark) for mark, word in WORDS.items()} | {
    f"{word}_decimal_comma": Dialect(mark, ",") for mark, word in WORDS.items() if mark != ","
}
AUTO = "auto"
Categories: TypeAlias = "Mapping[str, Sequence[Any]] | Collection[str]"


@dataclass(frozen=True)
class TableOptions:
    """How to read a table; files of arrays and Minari datasets need none of these."""

    csv_dialect: str = AUTO
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # values in order; (): those of the data
    max_gap: float | None = None  # seconds; a longer gap between two rows ends the episode
    is_known: bool = False  # the categories are those of a known spec
    text_times: bool = True  # recognise text that holds timestamps
    date_order: str = ""  # day or month first, where the dates of one file do not show it
    action_start: int | None = None  # the first Discrete action; None: 1 if the actions are integers from 1
    action_numbers: Numbers | None = None  # of all files, to find the first action; None: those of the file
    final_rows: bool = True  # terminal rows may lack an action; False: in another file, some have one
    keep_durations: bool = False  # add the time to the next row, before rows are left out
    mixed_ids: Collection[str] = ()  # of ids, columns that hold text in some files and numbers in others
    ids: Mapping[str, dict[object, int]] = field(default_factory=dict)  # columns of text to number, with all files' ids

    def __post_init__(self) -> None:
        check_dialect(self.csv_dialect)
        if self.max_gap is not None and not self.max_gap > 0:
            raise ValueError(f"max_gap must be a positive number of seconds, got {self.max_gap:g}")

    def for_spec(self, spec: EnvSpec | None, action_range: object | None = None) -> TableOptions:
        """Returns the options with the categories and the first action of a known spec.

        Actions with a range are Box actions, so integers from 1 keep their values.
        """
        if spec is None:
            return self if action_range is None else replace(self, action_start=0)
        known = {name: tuple(values) for name, values in (spec.categories or {}).items()}
        return replace(self, categories={**self.categories, **known}, is_known=True, action_start=spec.action_start)


def table_options(
    categories: Categories | None = None, csv_dialect: str = AUTO, max_gap: float | None = None, *,
    ids: Collection[str] = (), keep_durations: bool = False,
) -> TableOptions:  # fmt: skip
    """Options from the user's values; `categories` is a list of columns, or their values in order by column."""
    if not isinstance(categories, Mapping):
        categories = dict.fromkeys(categories or (), ())
    values = {name: tuple(map(str, each)) for name, each in categories.items()}
    numbers: dict[str, dict[object, int]] = {name: {} for name in ids}
    return TableOptions(csv_dialect, values, max_gap, ids=numbers, keep_durations=keep_durations)


def check_dialect(name: str) -> str:
    if name != AUTO and name not in DIALECTS:
        raise ValueError(f"csv_dialect must be one of {', '.join([AUTO, *DIALECTS])}, got {name!r}")
    return name
