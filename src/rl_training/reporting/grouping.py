"""Groups stored runs by algorithm, environment and the options in which they differ."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rl_training.experiment.bench.plan import read_plan
from rl_training.experiment.config.messages import did_you_mean, shown
from rl_training.experiment.config.overrides import MAY_CHANGE
from rl_training.reporting.stored_runs import StoredRun, expand, flat, is_bench, read_run, run_directories, seed_ranges

# Keys about where and how a run was computed, which do not affect what is learned.
IGNORED = {"algo", "env_id", "seed", "output_dir", "dataset", "device", "compile", *MAY_CHANGE}
BENCH, RUN = "evaluation of the last checkpoint by `bench`", "last evaluation in training"


class Group(NamedTuple):
    """Runs that count as seeds of one setting; `cell` has the contents of a bench cell's result.json."""

    label: str
    env: str
    dataset: str | None
    seeds: list[int]
    paths: list[str]
    options: dict[str, Any]  # in which it differs from other groups
    cell: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        named = ("label", "env", "dataset", "seeds", "options")
        return {**{name: getattr(self, name) for name in named}, "runs": self.paths}

    def describe(self) -> str:
        return f"{self.label}: seed{'s' if len(self.seeds) > 1 else ''} {seed_ranges(self.seeds)}"


class Grouped(NamedTuple):
    groups: list[Group]
    missing: list[str]  # cells of a bench that are not done
    left_out: list[str]  # runs without a score, with the reason
    notes: list[str]  # warnings about the comparison


def group_runs(paths: Sequence[str], by: Sequence[str] = ()) -> Grouped:
    """Reads benches, runs and folders of runs. `by` names the only options that separate groups."""
    groups: list[Group] = []
    missing: list[str] = []
    runs: dict[Path, StoredRun] = {}
    for path in expand(paths):
        if is_bench(path):
            done, absent = bench_groups(path)
            groups, missing = groups + done, missing + absent
            continue
        directories = list(run_directories(path))
        if not directories:
            raise ValueError(f"{path} has no runs: it is neither a bench, a run directory nor a folder of runs")
        runs |= {directory.resolve(): read_run(directory) for directory in directories}
    scored = [run for run in runs.values() if run.is_finished and run.evaluations]
    left_out = [f"{run.path} ({_reason(run)})" for run in runs.values() if run not in scored]
    notes = [f"scores are measured differently: {BENCH} and {RUN}"] if groups and scored else []
    own, pooled = _run_groups(scored, by)
    return Grouped(_distinct([*groups, *own]), missing, left_out, [*notes, *pooled])


def _reason(run: StoredRun) -> str:
    if not run.is_finished:
        return f"{run.status} at step {run.step:,} of {run.total_steps:,}"
    return "it has no evaluations"


def bench_groups(directory: Path) -> tuple[list[Group], list[str]]:
    files = {cell.name: directory / cell.name / "result.json" for cell in read_plan(directory).cells()}
    groups = []
    for file in files.values():
        if file.is_file():
            cell = json.loads(file.read_text(encoding="utf-8"))
            seeds = [run["seed"] for run in cell["runs"]]
            paths = [str(file.parent / f"seed_{seed}") for seed in seeds]
            groups.append(Group(cell["algo"], cell["env"], cell["dataset"], seeds, paths, {}, cell))
    return groups, [name for name, file in files.items() if not file.is_file()]


class Setting(NamedTuple):
    """Runs of one algorithm, environment and dataset whose options that matter are equal."""

    algo: str
    env: str
    dataset: str | None
    options: dict[str, Any]  # in which it differs from other settings
    runs: list[StoredRun]

    @property
    def label(self) -> str:
        return " ".join([self.algo, *(f"{key}={shown_value(value)}" for key, value in self.options.items())])


def _run_groups(runs: Sequence[StoredRun], by: Sequence[str]) -> tuple[list[Group], list[str]]:
    settings, notes = settings_of(runs, by)
    return [_group(setting) for setting in settings], notes


def settings_of(runs: Sequence[StoredRun], by: Sequence[str] = ()) -> tuple[list[Setting], list[str]]:
    """Separates runs by setting; the notes name options in which runs of one setting differ because of `by`."""
    keys = {run.path: {key: value for key, value in flat(run.config).items() if key not in IGNORED} for run in runs}
    wanted = _known(by, [*keys.values()]) if by else None
    families: dict[tuple[str, str, str | None], list[StoredRun]] = {}
    for run in runs:
        families.setdefault((run.algo, str(run.env), run.dataset), []).append(run)
    settings, notes = [], []
    for (algo, env, dataset), members in families.items():
        differing = differing_keys([keys[run.path] for run in members])
        chosen = differing if wanted is None else wanted
        if pooled := [key for key in differing if key not in chosen]:
            notes.append(f"{algo} on {env} pools runs that differ in {', '.join(pooled)}")
        by_options: dict[str, list[StoredRun]] = {}
        for run in members:
            options = {key: keys[run.path][key] for key in chosen if key in keys[run.path]}
            by_options.setdefault(json.dumps(options, sort_keys=True), []).append(run)
        for text, same in by_options.items():
            options = {key: json.loads(text)[key] for key in chosen if key in json.loads(text)}
            settings.append(Setting(algo, env, dataset, options, same))
    return settings, notes


def _known(by: Sequence[str], configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the keys of `--by` as they stand in flattened configs."""
    names = {key: key for config in configs for key in config}
    found = []
    for key in by:
        plain = key.removeprefix("algo_kwargs.")
        if plain not in names and configs:
            raise ValueError(f"--by {key}: no run has this key{did_you_mean(plain, names)}")
        found.append(plain)
    return found


def differing_keys(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if len({json.dumps(config.get(key), sort_keys=True) for config in configs}) > 1]


def _group(setting: Setting) -> Group:
    _, env, dataset, options, runs = setting
    label = setting.label
    by_seed: dict[int, StoredRun] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        if run.seed in by_seed:
            raise ValueError(
                f"seed {run.seed} of {label} on {env} occurs twice, in {by_seed[run.seed].path} and {run.path}; "
                "leave one out, or separate them with --by KEY"
            )
        by_seed[run.seed] = run
    ordered = list(by_seed.values())
    cell = {"algo": label, "env": env, "dataset": dataset, "runs": [_as_cell_run(run) for run in ordered]}
    return Group(label, env, dataset, [*by_seed], [str(run.path) for run in ordered], options, cell)


def shown_value(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else shown(value)


def _as_cell_run(run: StoredRun) -> dict[str, Any]:
    settings = {key: value for key, value in run.config.items() if key not in ("seed", "output_dir")}
    return {
        "seed": run.seed, **{key: run.result.get(key) for key in ("steps", "updates", "seconds")},
        "score": run.evaluations[-1], "commit": run.record.get("git"),
        "config_hash": hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12],
        "curve": [[evaluation["step"], evaluation["return_mean"]] for evaluation in run.evaluations],
    }  # fmt: skip


def _distinct(groups: Sequence[Group]) -> list[Group]:
    """Adds the folder to labels that occur twice for one task."""
    names = [(group.label, group.env, group.dataset) for group in groups]
    return [
        group if names.count(name) == 1 else _renamed(group, f"{group.label} in {Path(group.paths[0]).parent}")
        for group, name in zip(groups, names, strict=True)
    ]


def _renamed(group: Group, label: str) -> Group:
    return group._replace(label=label, cell={**group.cell, "algo": label})
