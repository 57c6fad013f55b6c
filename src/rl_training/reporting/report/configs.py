"""Config differences between the groups of a report."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from rl_training.experiment.config.yaml_text import write_yaml
from rl_training.reporting.report.groups import Gathered, ReportGroup
from rl_training.reporting.report.texts import short_text
from rl_training.reporting.settings import differing_keys, shown_value
from rl_training.reporting.stored_runs import flat

OF_A_RUN = {"seed", "output_dir"}
ABSENT = "\N{EN DASH}"


class Difference(NamedTuple):
    key: str
    values: list[str]  # one for each group

    @property
    def is_choice(self) -> bool:
        """Whether two groups that both have the option differ in it; otherwise only some algorithms have it."""
        return len({value for value in self.values if value != ABSENT}) > 1


class GroupConfig(NamedTuple):
    number: int
    label: str
    source: str
    yaml: str


def config_differences(gathered: Gathered) -> tuple[list[ReportGroup], list[Difference]]:
    """Groups with a config, and the keys in which any two of their runs differ."""
    found = [(group, each) for group in gathered.groups if (each := _flat_configs(group))]
    configs = [each for _, each in found]
    keys = differing_keys([config for each in configs for config in each])
    return [group for group, _ in found], [_difference(key, configs) for key in keys]


def _flat_configs(group: ReportGroup) -> list[dict[str, Any]]:
    runs = [member.run for member in group.members if member.run is not None]
    return [{key: value for key, value in flat(run.config).items() if key not in OF_A_RUN} for run in runs]


def _difference(key: str, groups: list[list[dict[str, Any]]]) -> Difference:
    return Difference(key, [" or ".join(dict.fromkeys(_text(config, key) for config in configs)) for configs in groups])


def _text(config: dict[str, Any], key: str) -> str:
    if key not in config:
        return ABSENT
    value = config[key]
    simple = value is None or isinstance(value, str | int | float)
    return short_text(shown_value(value) if simple else json.dumps(value))


def group_configs(gathered: Gathered) -> list[GroupConfig]:
    """The whole config of the first run of each group."""
    return [
        GroupConfig(group.number, group.name, str(run.path / "config.yaml"), short_text(write_yaml(run.config), 20_000))
        for group in gathered.groups
        if (run := group.first_run) is not None
    ]
