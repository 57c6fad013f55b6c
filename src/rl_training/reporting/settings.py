"""Separates stored runs and cells of benches by the options in which they differ."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rl_training.experiment.config.differences import EFFECTIVE, MAY_CHANGE
from rl_training.experiment.config.messages import shown, similar_key
from rl_training.experiment.config.train_config import TrainConfig
from rl_training.reporting.bench_cells import BenchCell
from rl_training.reporting.stored_runs import NO_ENV, StoredRun, flat

FAMILY = ("algo", "env_id", "dataset")  # keys that always separate
# Keys about where and how a run was computed, which do not affect what is learned.
IGNORED = {*FAMILY, "seed", "output_dir", "device", "compile", *MAY_CHANGE} - {*EFFECTIVE}

Family = tuple[str, str, str | None]  # algorithm, environment and dataset


class Setting(NamedTuple):
    """Runs of one algorithm, environment and dataset whose options that matter are equal."""

    algo: str
    env: str
    dataset: str | None
    options: dict[str, Any]  # in which it differs from other settings
    runs: list[StoredRun]

    @property
    def label(self) -> str:
        return label_of(self.algo, self.options)


class Settings(NamedTuple):
    runs: list[Setting]
    cells: list[dict[str, Any]]  # options of each cell in which it differs from other settings
    notes: list[str]


class _Described(NamedTuple):
    family: Family
    config: dict[str, Any]  # flattened
    planned: Iterable[str]  # keys that the plan of a bench sets
    is_whole: bool  # False if only the plan is known


def settings_of(runs: Sequence[StoredRun], by: Sequence[str], cells: Sequence[BenchCell]) -> Settings:
    """Separates runs by setting. `by` names the only options that separate; the notes name others that differ."""
    described = [
        *(_Described(cell.family, flat(cell.config), cell.planned, cell.is_whole) for cell in cells),
        *(_Described((run.algo, str(run.env or NO_ENV), run.dataset), flat(run.config), (), True) for run in runs),
    ]
    options = _options(described, by)
    by_setting: dict[tuple[Family, str], list[StoredRun]] = {}
    first: dict[tuple[Family, str], dict[str, Any]] = {}
    for run, each, chosen in zip(runs, described[len(cells) :], options[len(cells) :], strict=True):
        key = each.family, json.dumps(chosen, sort_keys=True)
        by_setting.setdefault(key, []).append(run)
        first.setdefault(key, chosen)
    settings = [Setting(*key[0], first[key], same) for key, same in by_setting.items()]
    order = [*_families(described)]
    settings.sort(key=lambda each: order.index((each.algo, each.env, each.dataset)))
    return Settings(settings, options[: len(cells)], [*_pooled(settings), *_equal(cells)])


def _families(described: Sequence[_Described]) -> dict[Family, list[_Described]]:
    found: dict[Family, list[_Described]] = {}
    for each in described:
        found.setdefault(each.family, []).append(each)
    return found


def _options(described: Sequence[_Described], by: Sequence[str]) -> list[dict[str, Any]]:
    wanted = _known(by, [each.config for each in described]) if by else None
    keys = {family: _separating(same) if wanted is None else wanted for family, same in _families(described).items()}
    return [
        {key: each.config[key] for key in keys[each.family] if key in each.config and not _is_default(key, each.config)}
        for each in described
    ]


def _is_default(key: str, config: Mapping[str, Any]) -> bool:
    """Whether a key is one of `EFFECTIVE` with its default; configs of earlier versions lack such a key."""
    return key in EFFECTIVE and config[key] in (TrainConfig.model_fields[key].default, [], None)


def _separating(described: Sequence[_Described]) -> list[str]:
    """Where only the plan of a bench is known, keys that no plan sets are unknown and separate nothing."""
    keys = differing_keys([counted(each.config) for each in described])
    planned = {key for each in described for key in each.planned}
    return keys if all(each.is_whole for each in described) else [key for key in keys if key in planned]


def counted(config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a flattened config that affect what is learned."""
    return {key: value for key, value in config.items() if key not in IGNORED and not _is_default(key, config)}


def _known(by: Sequence[str], configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the keys of `--by` as they stand in flattened configs, without those that always separate."""
    names = {key: key for config in configs for key in config}
    found = []
    for key in by:
        plain = key.removeprefix("algo_kwargs.")
        if plain not in names and plain not in FAMILY and configs:
            raise ValueError(f"--by {key}: no run has this key{similar_key(plain, names)}")
        found.append(plain)
    return [key for key in found if key not in FAMILY]


def _pooled(settings: Sequence[Setting]) -> list[str]:
    keys: dict[tuple[str, str], dict[str, None]] = {}
    for setting in settings:
        differing = differing_keys([counted(flat(run.config)) for run in setting.runs])
        keys.setdefault((setting.algo, setting.env), {}).update(dict.fromkeys(differing))
    return [
        f"{algo} on {env} pools runs that differ in {', '.join(each)}" for (algo, env), each in keys.items() if each
    ]


def _equal(cells: Sequence[BenchCell]) -> list[str]:
    """Names cells of several benches that have the same settings."""
    whole = all(cell.is_whole for cell in cells)
    same: dict[tuple[Family, str], list[str]] = {}
    for cell in cells:
        known = counted(flat(cell.config if whole else cell.planned))
        same.setdefault((cell.family, json.dumps(known, sort_keys=True)), []).append(str(cell.folder))
    return [
        f"{algo} on {env} has the same settings in {' and '.join(folders)}"
        for ((algo, env, _), _), folders in same.items()
        if len(folders) > 1
    ]


def differing_keys(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if len({json.dumps(config.get(key), sort_keys=True) for config in configs}) > 1]


def label_of(algo: str, options: Mapping[str, Any]) -> str:
    return " ".join([algo, *(f"{key}={shown_value(value)}" for key, value in options.items())])


def shown_value(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else shown(value)
