"""Reads the cells of a bench: plan, result, and the config of their runs."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rl_training.experiment.bench.plan import BenchPlan, Cell, read_plan
from rl_training.experiment.bench.scores import is_scored_as
from rl_training.experiment.config.train_config import load_config
from rl_training.reporting.stored_runs import NO_ENV, flat


class BenchCell(NamedTuple):
    folder: Path
    cell: Cell
    result: dict[str, Any] | None  # result.json; None if the cell is not done
    planned: dict[str, Any]  # flattened keys that the plan sets
    config: dict[str, Any]  # of its runs; the planned keys if it is unknown
    is_whole: bool  # False if the config is unknown

    @property
    def family(self) -> tuple[str, str, str | None]:
        if self.result is not None:
            return str(self.result["algo"]), str(self.result["env"] or NO_ENV), self.result["dataset"]
        return self.cell.learner, str(self.cell.env or self.config.get("env_id") or NO_ENV), self.cell.dataset


def read_cells(directory: Path, only: Collection[str] | None = None) -> list[BenchCell]:
    """Reads all cells of a bench, or those with the names `only`."""
    plan = read_plan(directory)
    return [_read(directory / cell.name, cell, plan) for cell in plan.cells() if only is None or cell.name in only]


def _read(folder: Path, cell: Cell, plan: BenchPlan) -> BenchCell:
    file = folder / "result.json"
    try:
        result = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
    except ValueError as error:
        remedy = "restore it from a copy, or remove it and repeat the bench"
        raise ValueError(f"{file} is damaged ({error}); {remedy}") from None
    if result is not None and not is_scored_as(result, plan):
        result = None  # the options of the scores have changed, and the cell is not scored again yet
    planned, config = _planned(cell, plan), _run_config(folder) or _stored_config(result)
    return BenchCell(folder, cell, result, planned, planned if config is None else config, config is not None)


def _stored_config(result: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The config in result.json, which earlier versions did not write."""
    config = None if result is None else result.get("config")
    return config if isinstance(config, dict) else None


def _planned(cell: Cell, plan: BenchPlan) -> dict[str, Any]:
    """The file of a config may be absent where results were copied."""
    values = _load(cell.learner) if cell.learner in plan.configs else None
    steps = {} if plan.steps is None else {"total_timesteps": plan.steps}
    return {**flat(values or {}), **steps, **{key.removeprefix("algo_kwargs."): each for key, each in plan.set.items()}}


def _run_config(folder: Path) -> dict[str, Any] | None:
    found = (_load(str(file)) for file in sorted(folder.glob("seed_*/config.yaml")))
    return next((config for config in found if config is not None), None)


def _load(name: str) -> dict[str, Any] | None:
    try:
        return load_config(name)
    except (ValueError, OSError):
        return None
