"""Published scores, and scores of other libraries run here, read from references.yaml."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import inf, log
from pathlib import Path
from typing import Any, TypeAlias

import yaml

FILE = Path(__file__).with_name("references.yaml")
Task: TypeAlias = "tuple[str, str, str | None]"  # algorithm, environment and dataset


@dataclass(frozen=True)
class Reference:
    algo: str
    env: str
    dataset: str | None
    budget: int | None  # None if the source does not state it
    score: float
    std: float | None  # over seeds
    seeds: int | None
    source: str
    where: str
    version: str | None = None  # of the environment, where it differs from the one run here
    measure: str | None = None  # if not evaluation returns
    setting: str | None = None  # of the rows to compare with, if not all of the task

    @property
    def task(self) -> Task:
        return self.algo, self.env, self.dataset

    def to_json(self) -> dict[str, Any]:
        named = ("score", "std", "seeds", "budget", "version", "measure", "source", "where")
        return {name: getattr(self, name) for name in named}


def published() -> list[Reference]:
    return references("published")


def peers() -> list[Reference]:
    return references("peers")


@cache
def references(kind: str) -> list[Reference]:
    content = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return [figure for entry in content[kind] for figure in _figures(entry, content["sources"])]


def _figures(entry: Mapping[str, Any], sources: Mapping[str, Any]) -> Iterator[Reference]:
    source = {"version": None, "measure": None, "seeds": None, **sources[entry["source"]], **entry}
    for budget, score in entry["scores"].items():
        mean, std = score if isinstance(score, list) else (score, None)
        yield Reference(
            entry["algo"], entry["env"], entry.get("dataset"), budget, mean, std, source["seeds"], source["name"],
            source["where"], source["version"], source["measure"], entry.get("setting"),
        )  # fmt: skip


def comparable(figures: Iterable[Reference], task: Task, setting: str | None) -> list[Reference]:
    """Figures of a task: those with the same setting if there are any, otherwise those without one."""
    found = [figure for figure in figures if figure.task == task]
    return [each for each in found if setting and each.setting == setting] or [
        each for each in found if not each.setting
    ]


def nearest(figures: Iterable[Reference], budget: int) -> list[Reference]:
    """The figure of each source whose budget is nearest to `budget`, in the order of the file."""
    chosen: dict[str, Reference] = {}
    for figure in figures:
        held = chosen.get(figure.source)
        if held is None or _distance(figure, budget) < _distance(held, budget):
            chosen[figure.source] = figure
    return list(chosen.values())


def _distance(figure: Reference, budget: int) -> float:
    return inf if figure.budget is None else abs(log(figure.budget / budget))
