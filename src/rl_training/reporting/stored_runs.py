"""Finds run directories and benchmarks on disk, and reads their config, status, score and curve."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.experiment.config.train_config import load_config
from rl_training.experiment.result import UNFINISHED, is_run
from rl_training.files import read_json

PLAN = "bench.yaml"
NO_ENV = "data"  # in place of the environment of runs that have none
SKIPPED = ("checkpoints", "tensorboard", "videos")  # folders of a run, which hold no other runs


@dataclass(frozen=True)
class StoredRun:
    """One run directory as its files describe it. Nothing of it is imported or executed."""

    path: Path
    config: dict[str, Any]
    record: dict[str, Any] = field(default_factory=dict)  # run.json
    result: dict[str, Any] = field(default_factory=dict)  # result.json
    rows: list[dict[str, Any]] = field(default_factory=list)  # metrics.jsonl

    @property
    def algo(self) -> str:
        return str(self.config.get("algo", "?"))

    @property
    def env(self) -> str | None:
        return self.config.get("env_id")

    @property
    def seed(self) -> int:
        return int(self.config.get("seed") or 0)

    @property
    def dataset(self) -> str | None:
        """Name of the dataset, or a description of several."""
        data = self.config.get("dataset")
        return data if data is None or isinstance(data, str) else json.dumps(data, sort_keys=True)

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        return [row["evaluation"] for row in self.rows if isinstance(row.get("evaluation"), dict)]

    @property
    def step(self) -> int:
        return max((int(row["step"]) for row in self.rows if "step" in row), default=0)

    @property
    def total_steps(self) -> int:
        planned = int(self.config.get("total_timesteps") or 0) + int(self.config.get("online_steps") or 0)
        return int(self.record.get("total_timesteps") or planned)

    @property
    def status(self) -> str:
        """`finished`, `early_stop`, `stopped`, `failed`; `incomplete` if no result was written."""
        return str(self.result.get("status", "incomplete"))

    @property
    def is_finished(self) -> bool:
        return bool(self.result) and self.status not in UNFINISHED


def expand(paths: Iterable[str]) -> list[Path]:
    """Resolves patterns such as `runs/*/seed_0`; a path without a match raises an error."""
    found: dict[Path, None] = {}
    for path in paths:
        matches = sorted(glob.glob(path)) if glob.has_magic(path) and not Path(path).exists() else [path]
        if not matches:
            raise FileNotFoundError(f"nothing matches {path}")
        for match in matches:
            if not Path(match).exists():
                raise FileNotFoundError(f"{match} does not exist")
            found[Path(match)] = None
    return list(found)


def is_bench(path: Path) -> bool:
    return (path / PLAN).is_file()


def run_directories(path: Path) -> Iterator[Path]:
    """Yields the run directories at or below a path, in the order of their names."""
    if is_run(path):
        yield path
        return
    for child in children(path):
        yield from run_directories(child)


def children(path: Path) -> list[Path]:
    """Returns the readable folders that may hold runs, in the order of their names."""
    if not path.is_dir():
        return []
    folders = [child for child in path.iterdir() if child.is_dir() and not child.is_symlink()]
    folders = [child for child in folders if os.access(child, os.R_OK | os.X_OK)]
    return sorted((child for child in folders if child.name not in SKIPPED), key=lambda each: _by_number(each.name))


def _by_number(name: str) -> tuple[str, int]:
    """Sorts seed_2 before seed_10."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or -1)


def read_run(path: Path) -> StoredRun:
    """Reads a run directory; raises ValueError or OSError if its config cannot be read."""
    config = load_config(str(path / "config.yaml"))
    record, result = (read_json(path / name) for name in ("run.json", "result.json"))
    return StoredRun(path, config, record, result, _rows(path / "metrics.jsonl"))


def _rows(file: Path) -> list[dict[str, Any]]:
    """Returns the rows of a log that can be read; a run that is being written ends in half a line."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    rows = []
    for line in lines:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return [row for row in rows if isinstance(row, dict)]


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns dotted keys; options of the algorithm stand without `algo_kwargs`."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            found |= flat(value, "" if name == "algo_kwargs" else f"{name}.")
        else:
            found[name] = value
    return found


def progress_text(step: int, total: int) -> str:
    """`50 of 100`; a rollout may end after the steps that were asked for."""
    return f"{step:,} of {total:,}" if step <= total else f"{step:,} (asked {total:,})"
