"""Warnings about tables: how they were read, observation scales and timestamps among the observations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rl_training.data.datasets.report import ColumnSummary, Finding
from rl_training.data.readers.names import TIME_NAMES
from rl_training.data.readers.rows import StoredColumns

SCALES = 1000.0  # largest ratio of the ranges of two observation entries without a warning
FAR = 100.0  # times the range of 98% of the values
SAMPLED = 10_000  # rows to find that range
EPOCH = 1e8, 1e13  # timestamps in seconds or milliseconds since 1970


def table_findings(stored: StoredColumns, obs: ColumnSummary) -> Iterator[Finding]:
    for kind, text, fix in stored.labels.warnings:
        yield Finding(kind, "warning", text, fix)
    names = stored.labels.names.get("obs", ())
    if len(obs.shape) == 1 and obs.dtype.startswith("float"):
        yield from _times_in_obs(obs, names)
        yield from _scales(obs, names)


def entry_name(number: int, names: Sequence[str]) -> str:
    """An entry of a column by number, with its name if it has one."""
    return f"{number} ({names[number]})" if len(names) > 1 and number < len(names) else str(number)


def _times_in_obs(obs: ColumnSummary, names: Sequence[str]) -> Iterator[Finding]:
    low, high = EPOCH
    for number, name in enumerate(names):
        if name.lower() in TIME_NAMES or low <= obs.low[number] <= obs.high[number] <= high:
            yield Finding(
                "time_in_obs", "warning",
                f"entry {entry_name(number, names)} of obs looks like a timestamp ({obs.low[number]:.10g} to "
                f"{obs.high[number]:.10g}); later times lie outside the data",
                f"leave it out of obs, and order the rows with --columns time={name}",
            )  # fmt: skip


def rounded_entries(obs: ColumnSummary, names: Sequence[str]) -> Iterator[Finding]:
    """Warns of entries whose numbers are too large for 32 bits, such as ids."""
    for number in obs.rounded:
        largest = max(abs(obs.low[number]), abs(obs.high[number]))
        yield Finding(
            "rounded", "warning",
            f"entry {entry_name(number, names)} of obs reaches {largest:.3g}, where 32-bit floats are "
            f"{np.spacing(np.float32(largest)):.3g} apart: smaller differences are lost",
            "subtract an offset or use another unit; leave ids out of obs",
        )  # fmt: skip


def outliers(stored: StoredColumns, name: str, summary: ColumnSummary) -> Iterator[Finding]:
    """Warns of numbers that are far from all others, such as -9999 for a missing value."""
    column = stored.columns[name]
    if column.dtype.kind != "f" or column.ndim > 2:
        return
    some = column[:: len(column) // SAMPLED + 1].reshape(-1, len(summary.low))
    if not len(some := some[np.isfinite(some).all(1)]):
        return
    low, high = np.quantile(some, [0.01, 0.99], axis=0)
    beyond = np.maximum(np.array(summary.high) - high, low - np.array(summary.low))
    for number in np.flatnonzero((high > low) & (beyond > FAR * (high - low))).tolist():
        values = column.reshape(len(column), -1)[:, number]
        row = int(np.where(np.isfinite(values), np.maximum(values - high[number], low[number] - values), 0).argmax())
        entry = f"entry {entry_name(number, stored.entry_names.get(name, ()))} of {name}" if len(low) > 1 else name
        yield Finding(
            "outliers", "warning",
            f"{entry} is {values[row]:g} in row {stored.place(row)}, while 98% of its values lie between "
            f"{low[number]:.4g} and {high[number]:.4g}",
            "correct or remove such rows: a single one shifts normalised observations and guessed bounds",
        )  # fmt: skip


def _scales(obs: ColumnSummary, names: Sequence[str]) -> Iterator[Finding]:
    ranges = {
        number: high - low for number, (low, high) in enumerate(zip(obs.low, obs.high, strict=True)) if high > low
    }
    if not ranges:
        return
    wide, narrow = max(ranges, key=ranges.__getitem__), min(ranges, key=ranges.__getitem__)
    if ranges[wide] > SCALES * ranges[narrow]:
        yield Finding(
            "scales", "warning",
            f"observation scales differ by orders of magnitude: entry {entry_name(wide, names)} of obs spans "
            f"{ranges[wide]:.3g}, entry {entry_name(narrow, names)} spans {ranges[narrow]:.3g}",
            "standardise them with --set normalize_obs=true",
        )  # fmt: skip
