"""Scores of a report: tasks with entries and pairs, and performance profiles."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rl_training.reporting.comparison import Entry, Pair, Task, task_of
from rl_training.reporting.comparison_plots import profile, profile_band, profile_levels
from rl_training.reporting.report.curves import rounded
from rl_training.reporting.report.groups import Gathered, ReportGroup


class ScoredTask(NamedTuple):
    name: str
    groups: list[tuple[ReportGroup, Entry | None]]  # None without a score
    pairs: list[Pair]
    profiles: dict[str, Any] | None  # None without a score

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The lowest and the highest number of any entry."""
        numbers = [value for _, entry in self.groups if entry for value in (*entry.scores, *(entry.interval or ()))]
        return (min(numbers), max(numbers)) if numbers else None


def scored_tasks(gathered: Gathered) -> list[ScoredTask]:
    by_task: dict[str, list[ReportGroup]] = {}
    for group in gathered.groups:
        by_task.setdefault(group.task, []).append(group)
    return [_scored(name, members) for name, members in by_task.items()]


def _scored(name: str, groups: list[ReportGroup]) -> ScoredTask:
    scored = [(group, scores) for group in groups if (scores := _scores(group))]
    task = _compared(name, tuple((group.label, group.env or "", json.dumps(scores)) for group, scores in scored))
    entries = {group.number: entry for (group, _), entry in zip(scored, task.entries, strict=True)}
    profiles = _profiles(task, [*entries]) if entries else None
    return ScoredTask(name, [(group, entries.get(group.number)) for group in groups], task.pairs, profiles)


def _scores(group: ReportGroup) -> list[dict[str, Any]]:
    """The scores of the members that count, as in the result of a bench."""
    return [
        {"return_mean": member.score} if member.estimate is None else member.estimate
        for member in group.counted
        if member.score is not None
    ]


@lru_cache(maxsize=64)
def _compared(name: str, scores: tuple[tuple[str, str, str], ...]) -> Task:
    """Compares scores given as JSON. Cached, because `--every` asks again for scores that have not changed."""
    cells = [{"algo": label, "env": env, "runs": [{"score": score} for score in json.loads(each)]}
             for label, env, each in scores]  # fmt: skip
    return task_of(name, cells)


def _profiles(task: Task, numbers: list[int]) -> dict[str, Any]:
    levels = profile_levels(task)
    lines = []
    for number, entry in zip(numbers, task.entries, strict=True):
        line: dict[str, Any] = {"group": number, "y": rounded(np.array(profile(entry.scores, levels)))}
        if len(entry.scores) > 1:
            low, high = profile_band(entry.scores, levels)
            line |= {"low": rounded(np.array(low)), "high": rounded(np.array(high))}
        lines.append(line)
    return {"title": task.name, "levels": rounded(np.array(levels)), "groups": lines}
