"""Names of tasks, and intervals of scores that are off-policy estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_training import statistics
from rl_training.statistics import Interval

PLAYED_NOTE = "off-policy estimates from {}, not returns of played episodes"


def task_name(env: str | None, dataset: str | None, test: str | None = None) -> str:
    """The environment and the dataset, and the test data of estimates, since other test data give other estimates."""
    name = str(env or "data")
    if dataset is not None:
        source = "several datasets" if dataset.startswith("[") else "a recipe" if dataset.startswith("{") else dataset
        stem = data_name(source)
        name = stem if env is None else f"{env} from {stem}"
    return name if test is None else f"{name}, estimated on {data_name(test)}"


def data_name(source: str) -> str:
    """The name of a file without its folder, which the files of every split need."""
    path = Path(source)
    parent = f"{path.parent.name}/" if path.stem in ("train", "test") and path.parent.name else ""
    return f"{parent}{path.stem}" or source


def name_of(result: Mapping[str, Any]) -> str:
    """The task of a cell's result.json."""
    return task_name(result["env"], result["dataset"], result.get("test"))


def estimate_interval(scores: Sequence[Mapping[str, Any]]) -> Interval:
    """95% interval of the estimates of several seeds.

    All seeds are estimated on the same episodes, so more seeds do not reduce the error of the data: the bounds are the
    means over the seeds. Where the bootstrap interval over the seeds is wider, its bounds are used.
    """
    bounds = [tuple(map(float, score["interval"])) for score in scores]
    low, high = (sum(each) / len(bounds) for each in zip(*bounds, strict=True))
    if len(scores) == 1:
        return Interval(low, high)
    seeds = statistics.bootstrap_interval([float(score["estimate"]) for score in scores])
    return Interval(min(low, seeds.low), max(high, seeds.high))
