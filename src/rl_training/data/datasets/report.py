"""What a dataset holds, in numbers; counted chunk by chunk, so that a long log costs little memory beside its own."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import numpy as np

from rl_training.data.datasets.columns import to_array
from rl_training.data.datasets.validation import blocks, find_not_finite, reduce_rows
from rl_training.types import Array


class Finding(NamedTuple):
    """Something about a dataset that is wrong (it cannot be trained on) or doubtful, and what to do about it."""

    kind: str
    severity: Literal["error", "warning"]
    text: str
    fix: str

    @property
    def sentence(self) -> str:
        return f"{self.text}; {self.fix}" if self.fix else self.text


class Distribution(NamedTuple):
    """How numbers are distributed."""

    min: float
    lower_quartile: float
    median: float
    upper_quartile: float
    max: float
    mean: float

    @classmethod
    def of(cls, values: Array) -> Distribution | None:
        """Of the finite ones; None where there are none."""
        finite = values[np.isfinite(values)].astype(np.float64)
        if not len(finite):
            return None
        return cls._make([*np.quantile(finite, [0, 0.25, 0.5, 0.75, 1]).tolist(), float(finite.mean())])


class ColumnSummary(NamedTuple):
    """One column: its name in the file, and the range of every number in a row of it, flat."""

    stored_as: str | None  # None: made from the other columns
    dtype: str
    shape: tuple[int, ...]  # of a row
    low: tuple[float, ...]  # of the finite values; NaN where there are none
    high: tuple[float, ...]
    not_finite: int  # rows with a NaN or an infinite number
    first_not_finite: int | None

    @property
    def constant(self) -> list[int]:
        """The numbers of a row that never change."""
        return [number for number, (low, high) in enumerate(zip(self.low, self.high, strict=True)) if low == high]


@dataclass(frozen=True)
class DatasetReport:
    """All that `inspect_columns` found out."""

    findings: tuple[Finding, ...]
    rows: int = 0  # in the file
    transitions: int = 0  # of them that can be learned from
    episodes: int = 0
    terminals: int = 0  # episodes that ended in a terminal state
    timeouts: int = 0  # episodes that a time limit, or the end of the recording, cut
    columns: dict[str, ColumnSummary] = field(default_factory=dict)
    rewards: Distribution | None = None
    returns: Distribution | None = None
    lengths: Distribution | None = None
    duplicates: int = 0  # rows that are there before

    @property
    def trainable(self) -> bool:
        return all(finding.severity != "error" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        spreads = {name: getattr(self, name) for name in ("rewards", "returns", "lengths")}
        return {
            "trainable": self.trainable,
            **{name: getattr(self, name) for name in ("rows", "transitions", "episodes", "terminals", "timeouts")},
            "duplicates": self.duplicates,
            "columns": {name: column._asdict() for name, column in self.columns.items()},
            **{name: None if spread is None else spread._asdict() for name, spread in spreads.items()},
            "findings": [finding._asdict() for finding in self.findings],
        }


def summarize_column(column: Array, stored_as: str | None) -> ColumnSummary:
    """Pixels count as one number: thousands of ranges say no more than that of all."""
    shape = column.shape[1:]
    low = high = np.full(1 if column.dtype == np.uint8 and len(shape) > 1 else math.prod(shape), np.nan)
    wrong = np.flatnonzero(find_not_finite(to_array("", column)))
    for rows in blocks(column):
        values = column[rows].reshape(-1, len(low))
        if len(wrong):
            values = np.where(np.isfinite(values), values, np.nan)
        least, most = (np.fmin, np.fmax) if len(wrong) else (np.minimum, np.maximum)  # the latter are faster
        low, high = np.fmin(low, reduce_rows(least, values)), np.fmax(high, reduce_rows(most, values))
    return ColumnSummary(
        stored_as, str(column.dtype), shape, tuple(low.tolist()), tuple(high.tolist()), len(wrong),
        int(wrong[0]) if len(wrong) else None,
    )  # fmt: skip


def count_duplicates(*columns: Array) -> int:
    """Rows that are equal, bit for bit, to one before them."""
    sums = np.zeros(len(columns[0]), np.uint64)
    weights = np.random.default_rng(0).integers(2**64, size=sum(map(_words_a_row, columns)), dtype=np.uint64)
    for rows in blocks(max(columns, key=lambda column: column.size)):
        sums[rows] = np.concatenate([_words(column[rows]) for column in columns], axis=1) @ weights
    seen = np.sort(sums)
    alike = np.flatnonzero(np.isin(sums, seen[1:][seen[1:] == seen[:-1]]))  # the only ones to look at closely
    return len(alike) - len({_digest(*(column[row] for column in columns)) for row in alike})


def _digest(*parts: Array) -> bytes:
    """Told apart with certainty enough, and small however large a row is."""
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(part.tobytes())
    return digest.digest()


def _words(column: Array) -> Array:
    """The bits of each row, as whole numbers."""
    rows = np.ascontiguousarray(column).reshape(len(column), _words_a_row(column))
    return rows.view(f"u{rows.dtype.itemsize}").astype(np.uint64)


def _words_a_row(column: Array) -> int:
    return math.prod(column.shape[1:])
