"""Summary statistics of a dataset, computed in blocks to save memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import numpy as np

from rl_training.data.datasets.columns import to_array
from rl_training.data.datasets.validation import blocks, find_not_finite, reduce_rows
from rl_training.data.readers.rows import LeftOut
from rl_training.data.spaces.observations import MAX_EXACT
from rl_training.types import Array

FEW_NUMBERS = 4096  # float32 numbers between the smallest and the largest of a dimension


class Finding(NamedTuple):
    """A problem of a dataset and its fix. An error prevents training, a warning does not."""

    kind: str
    severity: Literal["error", "warning"]
    text: str
    fix: str

    @property
    def sentence(self) -> str:
        return f"{self.text}; {self.fix}" if self.fix else self.text


class Distribution(NamedTuple):
    min: float
    lower_quartile: float
    median: float
    upper_quartile: float
    max: float
    mean: float

    @classmethod
    def of(cls, values: Array) -> Distribution | None:
        """Distribution of the finite values, or None if there are none."""
        if not len(finite := values[np.isfinite(values)].astype(np.float64)):
            return None
        return cls._make([*np.quantile(finite, [0, 0.25, 0.5, 0.75, 1]).tolist(), float(finite.mean())])


class ColumnSummary(NamedTuple):
    """A column's name in the file, and the range of each dimension, flattened."""

    stored_as: str | None  # None if derived from other columns
    dtype: str
    shape: tuple[int, ...]  # of a row
    low: tuple[float, ...]  # of the finite values, NaN if there are none
    high: tuple[float, ...]
    not_finite: int  # rows with NaN or infinite values
    first_not_finite: int | None

    @property
    def constant(self) -> list[int]:
        """Indices of the dimensions that never change."""
        return [number for number, (low, high) in enumerate(zip(self.low, self.high, strict=True)) if low == high]

    @property
    def rounded(self) -> list[int]:
        """Indices of the dimensions whose large numbers are near each other, so that 32 bits hold few of them."""
        low, high = np.array(self.low), np.array(self.high)
        largest = np.maximum(np.abs(low), np.abs(high)).astype(np.float32)
        few = high - low < FEW_NUMBERS * np.spacing(largest)
        return np.flatnonzero(few & (largest > MAX_EXACT)).tolist()


@dataclass(frozen=True)
class DatasetReport:
    findings: tuple[Finding, ...]
    rows: int = 0  # in the file
    transitions: int = 0  # usable for training
    episodes: int = 0
    terminals: int = 0  # episodes that ended in a terminal state
    timeouts: int = 0  # episodes truncated by a time limit or the end of the recording
    columns: dict[str, ColumnSummary] = field(default_factory=dict)
    rewards: Distribution | None = None
    returns: Distribution | None = None
    lengths: Distribution | None = None
    duplicates: int = 0  # rows equal to an earlier one
    left_out: tuple[LeftOut, ...] = ()  # rows that are not used
    notes: tuple[str, ...] = ()  # how a table was read
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of the entries of a column of a table
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    action_start: int | tuple[int, ...] = 0  # number of the first action of a table, or of that of each choice

    @property
    def trainable(self) -> bool:
        return all(finding.severity != "error" for finding in self.findings)

    @property
    def distributions(self) -> list[tuple[str, ...]]:
        """Rows of a table: the name, then the numbers of `Distribution` as text."""
        named = {"return": self.returns, "length": self.lengths, "reward": self.rewards}
        return [(name, *(f"{value:.4g}" for value in values)) for name, values in named.items() if values]

    def to_json(self) -> dict[str, Any]:
        distributions = {name: getattr(self, name) for name in ("rewards", "returns", "lengths")}
        counts = ("rows", "transitions", "episodes", "terminals", "timeouts", "duplicates")
        return {
            "trainable": self.trainable,
            **{name: getattr(self, name) for name in counts},
            "columns": {name: column._asdict() for name, column in self.columns.items()},
            **{name: None if values is None else values._asdict() for name, values in distributions.items()},
            "findings": [finding._asdict() for finding in self.findings],
            "left_out": [each.to_json() for each in self.left_out],
            "notes": list(self.notes), "names": self.names, "categories": self.categories,
            "action_start": self.action_start,
        }  # fmt: skip


def summarize_column(column: Array, stored_as: str | None) -> ColumnSummary:
    """Summarises a column; images have one range for all pixels."""
    shape = column.shape[1:]
    low = high = np.full(1 if column.dtype == np.uint8 and len(shape) > 1 else math.prod(shape), np.nan)
    wrong = np.flatnonzero(find_not_finite(to_array("", column)))
    for rows in blocks(column):
        values = column[rows].reshape(-1, len(low))
        if len(wrong):
            values = np.where(np.isfinite(values), values, np.nan)
        minimum, maximum = (np.fmin, np.fmax) if len(wrong) else (np.minimum, np.maximum)  # the latter are faster
        low, high = np.fmin(low, reduce_rows(minimum, values)), np.fmax(high, reduce_rows(maximum, values))
    return ColumnSummary(
        stored_as, str(column.dtype), shape, tuple(low.tolist()), tuple(high.tolist()), len(wrong),
        int(wrong[0]) if len(wrong) else None,
    )  # fmt: skip


def count_duplicates(*columns: Array) -> int:
    """Number of rows that are bitwise equal to an earlier row."""
    sums = np.zeros(len(columns[0]), np.uint64)
    weights = np.random.default_rng(0).integers(2**64, size=sum(map(_row_size, columns)), dtype=np.uint64)
    for rows in blocks(max(columns, key=lambda column: column.size)):
        sums[rows] = np.concatenate([_words(column[rows]) for column in columns], axis=1) @ weights
    ordered = np.sort(sums)
    candidates = np.flatnonzero(np.isin(sums, ordered[1:][ordered[1:] == ordered[:-1]]))  # equal checksums
    return len(candidates) - len({_digest(*(column[row] for column in columns)) for row in candidates})


def _digest(*parts: Array) -> bytes:
    return blake2b(b"".join(part.tobytes() for part in parts), digest_size=16).digest()


def _words(column: Array) -> Array:
    rows = np.ascontiguousarray(column).reshape(len(column), _row_size(column))
    return rows.view(f"u{rows.dtype.itemsize}").astype(np.uint64)


def _row_size(column: Array) -> int:
    return math.prod(column.shape[1:])
