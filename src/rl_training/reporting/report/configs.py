"""Config differences between the groups of a report."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

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


def config_differences(gathered: Gathered) -> tuple[list[ReportGroup], list[Difference]]:
    """Groups with a config, and the keys in which any two of their runs differ."""
    groups = [group for group in gathered.groups if group.first_run is not None]
    configs = [[flat(member.run.config) for member in group.members if member.run is not None] for group in groups]
    keys = [key for key in differing_keys([config for each in configs for config in each]) if key not in OF_A_RUN]
    values = {key: [" or ".join(dict.fromkeys(_text(run, key) for run in runs)) for runs in configs] for key in keys}
    return groups, [Difference(key, each) for key, each in values.items()]


def _text(config: dict[str, Any], key: str) -> str:
    if key not in config:
        return ABSENT
    value = config[key]
    simple = value is None or isinstance(value, str | int | float)
    return short_text(shown_value(value) if simple else json.dumps(value))
