"""Names of tasks, and intervals of scores that are off-policy estimates."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_training import statistics
from rl_training.experiment.bench.plan import short_names
from rl_training.statistics import Interval

PLAYED_NOTE = "off-policy estimates from {}, not returns of played episodes"


def task_name(env: str | None, dataset: str | None, test: str | None, names: Mapping[str, str]) -> str:
    """The environment and the dataset, and the test data of estimates, since other test data give other estimates.

    `names` are those of `data_names`.
    """
    name = str(env or "data")
    if dataset is not None:
        source = "several datasets" if dataset.startswith("[") else "a recipe" if dataset.startswith("{") else dataset
        stem = names.get(source) or data_name(source)
        name = stem if env is None else f"{env} from {stem}"
    return name if test is None else f"{name}, estimated on {names.get(test) or data_name(test)}"


def data_name(source: str) -> str:
    """The name of a file without its folder, which the files of every split need."""
    path = Path(source)
    parent = f"{path.parent.name}/" if path.stem in ("train", "test") and path.parent.name else ""
    return f"{parent}{path.stem}" or source


def data_names(results: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Names of the datasets and test data of results, with folders where different files have the same name."""
    hashes: dict[str, set[str]] = {}
    for result in results:
        for source in (result.get("dataset"), result.get("test")):
            if isinstance(source, str):
                hashes.setdefault(source, set())
        if isinstance(dataset := result.get("dataset"), str):
            hashes[dataset] |= {data for run in (result, *result["runs"]) if isinstance(data := run.get("data"), str)}
    names = {}
    for source in hashes:
        same = (other for other in hashes if data_name(other) == data_name(source))
        others = [other for other in same if not _may_be_one(source, other, hashes)]
        names[source] = short_names([source, *others])[source] if others else data_name(source)
    return names


def _may_be_one(a: str, b: str, hashes: Mapping[str, Collection[str]]) -> bool:
    """Whether two paths may lead to the same data: one ends like the other, or the data had the same hash."""
    shorter, longer = sorted((Path(a).parts, Path(b).parts), key=len)
    return longer[-len(shorter) :] == shorter or not {*hashes[a]}.isdisjoint(hashes[b])


def name_of(result: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """The task of a cell's result.json."""
    return task_name(result["env"], result["dataset"], result.get("test"), names)


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
