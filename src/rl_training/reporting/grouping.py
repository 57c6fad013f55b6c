"""Groups stored runs by algorithm, environment and the options in which they differ."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rl_training.messages import seeds_text
from rl_training.reporting.bench_cells import BenchCell, read_cells
from rl_training.reporting.finding import find
from rl_training.reporting.settings import Setting, counted, differing_keys, label_of, settings_of
from rl_training.reporting.stored_runs import StoredRun, flat, progress_text, read_run
from rl_training.reporting.tasks import data_names, name_of

STOPPED = (
    "a stopped run counts after its command has been repeated and has finished. If your callback ends runs for good, "
    'call request_stop(reason, status="early_stop"); `rl-training bench` scores stopped runs too'
)
BENCH, RUN = "evaluation of the last checkpoint by `bench`", "last evaluation in training"


class Group(NamedTuple):
    """Runs that count as seeds of one setting; `cell` has the contents of a bench cell's result.json."""

    label: str
    env: str | None  # None for cells without an environment
    dataset: str | None
    seeds: list[int]
    paths: list[str]
    options: dict[str, Any]  # in which it differs from other groups
    cell: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        named = ("label", "env", "dataset", "seeds", "options")
        return {**{name: getattr(self, name) for name in named}, "runs": self.paths}

    def renamed(self, label: str) -> Group:
        return self._replace(label=label, cell={**self.cell, "algo": label})

    def describe(self) -> str:
        return f"{self.label}: {seeds_text(self.seeds)}"


class Grouped(NamedTuple):
    groups: list[Group]
    missing: list[str]  # cells of a bench that are not done
    left_out: list[str]  # runs that have not finished or were never evaluated, with the reason
    notes: list[str]  # warnings about the comparison


def group_runs(paths: Sequence[str], by: Sequence[str]) -> Grouped:
    """Reads benches, runs and folders of runs. `by` names the only options that separate groups."""
    found = find(paths)
    for path in found.empty:
        raise ValueError(_without_runs(path, path in found.studies))
    cells = [cell for bench, only in found.benches.values() for cell in read_cells(bench, only)]
    done = [cell for cell in cells if cell.result is not None]
    runs = [read_run(path) for path in found.runs.values()]
    scored = [run for run in runs if run.is_finished and run.evaluations]
    settings = settings_of(scored, by, done)
    groups = [cell_group(cell, options) for cell, options in zip(done, settings.cells, strict=True)]
    own = [_group(setting) for setting in settings.runs]
    mixed = [f"scores are measured differently: {BENCH} and {RUN}"] if groups and own else []
    return Grouped(
        _distinct([*groups, *own]),
        [cell.cell.name for cell in cells if cell.result is None],
        [f"{run.path} ({_reason(run)})" for run in runs if run not in scored],
        [*found.notes, *mixed, *settings.notes, *([STOPPED] if any(map(_stop_reason, runs)) else [])],
    )


def _without_runs(path: Path, is_study: bool) -> str:
    if is_study:
        return (
            f"{path} has only trials of a study, whose scores are too high: the best of many; give {path}/trials to "
            "compare them"
        )
    return f"{path} has no runs: it is neither a bench, a run directory nor a folder of runs"


def _reason(run: StoredRun) -> str:
    if run.is_finished:
        return "it has no evaluations"
    reason = _stop_reason(run)
    return f"{run.status} at step {progress_text(run.step, run.total_steps)}{reason and f': {reason}'}"


def _stop_reason(run: StoredRun) -> str:
    """Returns why a run was stopped by a signal or a callback; an empty text for others."""
    return str(run.result.get("stop_reason") or "") if run.status == "stopped" else ""


def cell_group(cell: BenchCell, options: dict[str, Any]) -> Group:
    """The group of a cell that is done."""
    result = cell.result or {}
    seeds = [run["seed"] for run in result["runs"]]
    paths = [str(cell.folder / f"seed_{seed}") for seed in seeds]
    label = label_of(result["algo"], options)
    return Group(label, result["env"], result["dataset"], seeds, paths, options, {**result, "algo": label})


def _group(setting: Setting) -> Group:
    _, env, dataset, options, runs = setting
    label = setting.label
    by_seed: dict[int, StoredRun] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        if run.seed in by_seed:
            raise ValueError(_twice(label, env, by_seed[run.seed], run))
        by_seed[run.seed] = run
    ordered = list(by_seed.values())
    cell = {"algo": label, "env": env, "dataset": dataset, "runs": [_as_cell_run(run) for run in ordered]}
    return Group(label, env, dataset, [*by_seed], [str(run.path) for run in ordered], options, cell)


def _twice(label: str, env: str, a: StoredRun, b: StoredRun) -> str:
    differing = differing_keys([counted(flat(run.config)) for run in (a, b)])
    separate = f", or separate them with --by {differing[0]}" if differing else ""
    return (
        f"seed {a.seed} of {label} on {env} occurs twice, in {a.path} and {b.path}; leave one out: give only the "
        f"folders that you want{separate}"
    )


def _as_cell_run(run: StoredRun) -> dict[str, Any]:
    settings = {key: value for key, value in run.config.items() if key not in ("seed", "output_dir")}
    return {
        "seed": run.seed, **{key: run.result.get(key) for key in ("steps", "updates", "seconds")},
        "score": run.evaluations[-1], "commit": run.record.get("git"),
        "env_source": run.record.get("env_source"), "data": run.record.get("dataset"),
        "config": run.config,
        "config_hash": hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12],
        "curve": [[evaluation["step"], evaluation["return_mean"]] for evaluation in run.evaluations],
    }  # fmt: skip


def _distinct(groups: Sequence[Group]) -> list[Group]:
    """Adds the folder to labels that occur twice for one task."""
    sources = data_names([group.cell for group in groups])
    names = [(group.label, name_of(group.cell, sources)) for group in groups]
    return [
        group if names.count(name) == 1 else group.renamed(f"{group.label} in {Path(group.paths[0]).parent}")
        for group, name in zip(groups, names, strict=True)
    ]
