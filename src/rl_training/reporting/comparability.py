"""Notes about runs of one task that are hard to compare."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_training.experiment.bench.scores import is_estimate
from rl_training.messages import return_format, seeds_text
from rl_training.reporting.stored_runs import flat

READING = (
    "env_kwargs", "env_wrappers", "dataset_columns", "dataset_episodes", "dataset_stride", "action_range", "allow",
    "table", "rewards", "discount_time", "time_unit",
)  # fmt: skip

Results = Sequence[Mapping[str, Any]]  # the result.json of cells, or the same for groups of runs


def comparability_notes(name: str, results: Results) -> list[str]:
    notes = (
        _unequal_steps(name, results), _other_environments(name, results), *_other_data(name, results),
        _other_estimates(name, results),
    )  # fmt: skip
    return [note for note in notes if note is not None]


def _unequal_steps(name: str, results: Results) -> str | None:
    """Reports runs of one task that took over 10 % more steps than others, such as seeds that stopped early."""
    taken = {result["algo"]: [run["steps"] for run in result["runs"] if run.get("steps")] for result in results}
    every = [steps for each in taken.values() for steps in each]
    if not every or max(every) < 1.1 * min(every):
        return None
    named = ", ".join(f"{algo} {_range(steps)}" for algo, steps in taken.items() if steps)
    return f"{name}: the runs took unequal steps ({named})"


def _range(numbers: Sequence[int]) -> str:
    return " to ".join(f"{number:,}" for number in dict.fromkeys((min(numbers), max(numbers))))


def _other_environments(name: str, results: Results) -> str | None:
    """Reports runs of one task that started with different contents of the file that defines the environment."""
    found: dict[str, dict[str, list[int]]] = {}  # seeds by contents and algorithm
    files: dict[str, None] = {}
    for result in results:
        for run in result["runs"]:
            source = run.get("env_source")
            if isinstance(source, dict) and isinstance(source.get("sha256"), str):
                found.setdefault(source["sha256"], {}).setdefault(result["algo"], []).append(run["seed"])
                files[Path(str(source.get("file"))).name] = None
    if len(found) < 2:
        return None
    return (
        f"{name}: {', '.join(files)} was edited between runs, so their environments may differ "
        f"({_versions(found)}); train all of them with one version of the file"
    )


def _other_data(name: str, results: Results) -> list[str]:
    """Reports runs that read a dataset with the same options, but not with the same contents."""
    found: dict[str, dict[str, dict[str, list[int]]]] = {}  # as `_other_environments`, by options of reading
    for result in results:
        for run in result["runs"]:
            data, config = run.get("data") or result.get("data"), run.get("config") or result.get("config")
            if isinstance(data, str) and isinstance(config, dict):
                seeds = found.setdefault(_reading(config), {}).setdefault(data, {})
                seeds.setdefault(result["algo"], []).append(run["seed"])
    return [
        f"{name}: runs read different data ({_versions(each)}); train all of them with the same data"
        for each in found.values()
        if len(each) > 1
    ]


def _other_estimates(name: str, results: Results) -> str | None:
    """Reports off-policy estimates that cannot be compared, because their returns of the test data differ."""
    found: dict[float, dict[str, None]] = {}  # algorithms by the return of the test data
    for result in results:
        scores = [run.get("score") for run in result["runs"]]
        for score in (score for score in scores if isinstance(score, dict) and is_estimate(score)):
            value = score.get("behaviour_return")
            if isinstance(value, float):
                near = next((known for known in found if math.isclose(known, value, rel_tol=1e-4)), value)
                found.setdefault(near, {})[result["algo"]] = None
    if len(found) < 2:
        return None
    each = "; ".join(f"{', '.join(algos)} {value:,{return_format(value)}}" for value, algos in found.items())
    return (
        f"{name}: the estimates have different discounts or test data, so they cannot be compared "
        f"(return of the test data: {each}); use the same --gamma and --test"
    )


def _reading(config: Mapping[str, Any]) -> str:
    """The options on which the contents of a dataset depend, and the dataset if it is not a single file."""
    options, dataset = flat(config), config.get("dataset")
    given = {key: value for key, value in options.items() if key.partition(".")[0] in READING}
    return json.dumps([given, None if isinstance(dataset, str) else dataset], sort_keys=True)


def _versions(found: Mapping[str, Mapping[str, Sequence[int]]]) -> str:
    each = (", ".join(f"{algo} {seeds_text(seeds)}" for algo, seeds in version.items()) for version in found.values())
    return "; ".join(each)
