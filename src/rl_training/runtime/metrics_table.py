"""Reads metrics.jsonl, as rows or as a table."""

import json
import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from rl_training.runtime.callbacks.trackers.subject import FLAT

METRICS, TRIALS = "metrics.jsonl", "trials"
Table = Literal["pandas", "polars", "list"]


def read_metrics(path: Path | str, *, table: Table | None = None) -> Any:
    """Returns the logged metrics of a run as a data frame, one row per log entry or evaluation.

    `path` is a run directory, the directory of several seeds, whose rows then have a column `seed`, or a benchmark,
    whose rows have a column `cell` too. In a study of `tune`, `cell` is the number of the trial.
    The result is a pandas data frame if pandas is installed, else a polars one, else a list of dicts; `table` chooses
    one of them.
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


def logged_rows(run: Path, *, last_bytes: int | None = None) -> list[dict[str, Any]]:
    """Returns the complete lines of a run's metrics.jsonl, or of its last bytes; none if there is no log."""
    file = run / METRICS
    if not file.exists():
        return []
    with file.open("rb") as log:
        cut = last_bytes is not None and log.seek(0, os.SEEK_END) > last_bytes
        log.seek(-(last_bytes or 0) if cut else 0, os.SEEK_END if cut else os.SEEK_SET)
        lines = log.read().split(b"\n")[1 if cut else 0 : -1]  # a run that trains now may write a part of the last one
    return [json.loads(line) for line in lines]


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if (path / METRICS).exists():
        yield from (dict(_flat(row)) for row in logged_rows(path))
        return
    path = path / TRIALS if (path / TRIALS).is_dir() else path
    cells = {} if _seeds(path) else {cell.name: cell for cell in sorted(path.glob("*")) if _seeds(cell)}
    if not cells and not _seeds(path):
        raise FileNotFoundError(
            f"no {METRICS} in {path}; give a run directory, or one of several seeds, a benchmark or a study"
        )
    for name, cell in (cells or {"": path}).items():
        for seed, run in _seeds(cell).items():
            at = {"cell": name, "seed": seed} if cells else {"seed": seed}
            yield from ({**at, **dict(_flat(row))} for row in logged_rows(run))


def _seeds(path: Path) -> dict[int, Path]:
    """The runs of a directory of several seeds, by their seed."""
    seeds = {int(number): each for each in path.glob("seed_*") if (number := each.name[5:]).isdecimal()}
    return {seed: seeds[seed] for seed in sorted(seeds) if (seeds[seed] / METRICS).exists()}


def _flat(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the numbers of a row; those of `evaluation` are named as the flat keys of newer logs."""
    for key, value in row.items():
        if isinstance(value, Mapping):
            start = FLAT if key == "evaluation" else f"{key}."
            yield from ((f"{start}{name}", inner) for name, inner in value.items() if not isinstance(inner, list))
        elif not isinstance(value, list):
            yield key, value
