"""One row for each algorithm, task and budget: the score of every seed, and the figures to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from rl_training.statistics import Interval, bootstrap_interval, interquartile_mean, student_interval
from scores import references
from scores.references import Reference, Task

# Families in the order of the page, with the page of docs/families that explains them.
FAMILIES = {
    "value_based": ("Value-based", ("dqn", "c51", "qr_dqn", "iqn", "fqf", "rainbow", "pqn")),
    "on_policy": ("On-policy", ("ppo",)),
    "actor_critic": ("Actor-critic", ("sac", "td3", "redq", "tqc", "crossq")),
    "offline": ("Offline", ("bc", "bcq", "iql", "td3_bc", "rebrac", "awac", "cql", "cal_ql", "edac", "xql", "fql")),
    "imitation": ("Imitation", ("gail",)),
    "model_based": ("Model-based", ("mbpo", "mopo")),
    "world_model": ("World model", ("dreamer",)),
}
UPDATES = (*FAMILIES["offline"][1], "mopo")  # their budget is in gradient steps
NAMES = {"bc": "BC", "bcq": "BCQ", "cal_ql": "Cal-QL", "crossq": "CrossQ", "dreamer": "Dreamer", "qr_dqn": "QR-DQN",
         "rainbow": "Rainbow", "rebrac": "ReBRAC", "td3_bc": "TD3+BC"}  # fmt: skip


@dataclass(frozen=True)
class Peer:
    """Another library, run here at the same settings and budget."""

    name: str
    seeds: list[float]
    seconds: dict[str, list[float]] | None = None  # of training, by side


@dataclass(frozen=True)
class Row:
    algo: str
    env: str
    budget: int
    seeds: list[float]  # the score of each seed
    file: str
    dataset: str | None = None
    config: str | None = None  # the packaged config, if nothing of it was changed
    setting: str | None = None  # what else distinguishes the row
    planned: int | None = None  # the budget of the config
    final: bool = True  # False for an evaluation in the middle of longer runs
    earlier: tuple[int, ...] = ()  # budgets at which the same runs have rows of their own
    measure: str = "return"  # or "normalized score"
    episodes: int | None = None  # per seed
    returns: list[float] | None = None  # of normalized scores
    training_returns: list[float] | None = None  # mean of recent training episodes of each seed
    peer: Peer | None = None
    family: str = ""
    commands: Sequence[str] = ()
    hardware: str | None = None
    commit: str | None = None
    note: str | None = None

    @property
    def task(self) -> Task:
        return self.algo, self.env, self.dataset

    @property
    def name(self) -> str:
        return NAMES.get(self.algo, self.algo.upper())

    @property
    def unit(self) -> str:
        return "updates" if self.algo in UPDATES else "steps"

    @property
    def mean(self) -> float:
        return fmean(self.seeds)

    @property
    def middle(self) -> float:
        return interquartile_mean(self.seeds)

    @cached_property
    def interval(self) -> Interval | None:
        return bootstrap_interval(self.seeds) if len(self.seeds) > 1 else None

    def published(self) -> list[Reference]:
        """The figure of each source with the nearest budget; only equal budgets beside an evaluation in training."""
        figures = self._nearest(references.published())
        return figures if self.final else [figure for figure in figures if figure.budget == self.budget]

    def peer_figures(self) -> list[Reference]:
        """Figures of other libraries run here that are not stored as results of their own."""
        figures = [] if self.peer else self._nearest(references.peers())
        return [figure for figure in figures if figure.budget not in self.earlier]

    def _nearest(self, figures: Sequence[Reference]) -> list[Reference]:
        return references.nearest(references.comparable(figures, self.task, self.setting), self.budget)

    def difference(self) -> tuple[float, Interval] | None:
        """Difference of the means to the main published figure of the same budget, with Welch's 95% interval."""
        figure = next(iter(self.published()), None)
        if figure is None or figure.budget != self.budget or figure.std is None or not figure.seeds:
            return None
        ours, theirs = variance_of_mean(self.seeds), figure.std**2 / figure.seeds
        if len(self.seeds) < 3 or ours + theirs == 0:
            return None
        freedom = (ours + theirs) ** 2 / (ours**2 / (len(self.seeds) - 1) + theirs**2 / (figure.seeds - 1))
        gap = self.mean - figure.score
        return gap, student_interval(gap, sqrt(ours + theirs), max(2, int(freedom)))

    def to_json(self) -> dict[str, Any]:
        figures, gap = self.published(), self.difference()
        plain = asdict(self)
        del plain["earlier"]
        ordered = {name: plain.pop(name) for name in ("family", "algo", "env", "dataset", "config", "setting")}
        budget = {name: plain.pop(name) for name in ("budget", "planned", "final")}
        if self.peer is not None:
            plain["peer"] |= {"mean": fmean(self.peer.seeds), "interquartile_mean": interquartile_mean(self.peer.seeds)}
        return {
            **ordered, **budget, "unit": self.unit, "measure": plain.pop("measure"), "seeds": plain.pop("seeds"),
            "mean": self.mean, "interquartile_mean": self.middle,
            "interval_95": self.interval and list(self.interval),
            "published": figures[0].score if figures else None,
            "published_figures": [figure.to_json() for figure in figures],
            "difference": None if gap is None else {"mean": gap[0], "interval_95": list(gap[1])},
            "peer_figures": [figure.to_json() for figure in self.peer_figures()], **plain,
        }  # fmt: skip


def variance_of_mean(scores: Sequence[float]) -> float:
    return stdev(scores) ** 2 / len(scores) if len(scores) > 1 else 0.0


def family_of(algo: str) -> str:
    for family, (_, algos) in FAMILIES.items():
        if algo in algos:
            return family
    raise ValueError(f"algorithm {algo!r} has no family. Add it to FAMILIES in benchmarks/scores/rows.py")
