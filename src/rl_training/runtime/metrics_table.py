"""Reads metrics.jsonl as a table."""

import json
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from rl_training.runtime.callbacks.trackers.subject import FLAT

METRICS = "metrics.jsonl"
Table = Literal["pandas", "polars", "list"]


def read_metrics(path: Path | str, *, table: Table | None = None) -> Any:
    """Returns the logged metrics of a run as a data frame, one row per log entry or evaluation.

    `path` is a run directory, or the directory of several seeds, whose rows then have a column `seed`. The result is a
    pandas data frame if pandas is installed, else a polars one, else a list of dicts; `table` chooses one of them.
    Numbers of an evaluation are columns such as `eval_return_mean`.
    """
    rows = [*_rows(Path(path))]
    chosen = table or next((name for name in ("pandas", "polars") if find_spec(name) is not None), "list")
    if chosen == "list":
        return rows
    if chosen == "polars":
        import polars

        return polars.DataFrame(rows, infer_schema_length=None)
    import pandas

    return pandas.DataFrame(rows)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    file = path / METRICS
    if file.exists():
        yield from _rows_of(file)
        return
    seeds = {int(number): each for each in path.glob("seed_*") if (number := each.name[5:]).isdecimal()}
    logs = {seed: seeds[seed] / METRICS for seed in sorted(seeds) if (seeds[seed] / METRICS).exists()}
    if not logs:
        raise FileNotFoundError(f"no {METRICS} in {path}; give a run directory")
    for seed, log in logs.items():
        yield from ({"seed": seed, **row} for row in _rows_of(log))


def _rows_of(file: Path) -> Iterator[dict[str, Any]]:
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    for line in lines:
        if line.endswith("\n"):  # a run that trains now may have written a part of the last one
            yield dict(_flat(json.loads(line)))


def _flat(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the numbers of a row; those of `evaluation` are named as the flat keys of newer logs."""
    for key, value in row.items():
        if isinstance(value, Mapping):
            start = FLAT if key == "evaluation" else f"{key}."
            yield from ((f"{start}{name}", inner) for name, inner in value.items() if not isinstance(inner, list))
        elif not isinstance(value, list):
            yield key, value
