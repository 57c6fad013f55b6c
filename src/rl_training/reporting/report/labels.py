"""Short labels of the groups of a report, and their colours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rl_training.reporting.report.groups import ReportGroup
from rl_training.reporting.settings import shown_value


def with_labels(groups: Sequence[ReportGroup]) -> list[ReportGroup]:
    """Adds label, name and number; groups with the same label in different tasks have the same number."""
    families: dict[tuple[str, str], list[ReportGroup]] = {}
    for group in groups:
        families.setdefault((group.algo, group.task), []).append(group)
    keys = {family: telling_keys([group.options for group in members]) for family, members in families.items()}
    labels = [_label(group, keys[group.algo, group.task]) for group in groups]
    taken = [(label, group.task) for label, group in zip(labels, groups, strict=True)]
    labels = [
        label if taken.count((label, group.task)) == 1 else f"{label} in {group.members[0].path.parent}"
        for label, group in zip(labels, groups, strict=True)
    ]
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    several = len({group.task for group in groups}) > 1
    return [
        replace(group, label=label, number=numbers[label], name=f"{label} on {group.task}" if several else label)
        for label, group in zip(labels, groups, strict=True)
    ]


def _label(group: ReportGroup, keys: Sequence[str]) -> str:
    shown = [f"{key}={shown_value(group.options[key])}" for key in keys if key in group.options]
    return " ".join([group.algo, *shown, *(["…"] if len(group.options) > len(shown) else [])])


def telling_keys(options: Sequence[dict[str, Any]]) -> list[str]:
    """A few keys that separate all settings; each is the one that separates most of those that are still equal."""
    keys = list(dict.fromkeys(key for each in options for key in each))

    def count(chosen: Sequence[str]) -> int:
        return len({json.dumps([each.get(key, "absent") for key in chosen], sort_keys=True) for each in options})

    chosen: list[str] = []
    while count(chosen) < count(keys):
        chosen.append(max((key for key in keys if key not in chosen), key=lambda key: count([*chosen, key])))
    return [key for key in keys if key in chosen]
