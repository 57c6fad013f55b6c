"""Ranks stored runs on one dataset: checks that they are comparable, and which of them the data cannot separate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rl_training.experiment.agent import CHECKPOINTS, Agent, load_agent
from rl_training.experiment.ope.discounts import describe_discount, discount_notes, with_time
from rl_training.experiment.ope.policies import NAMES, SPACES, differs, load_dataset_for
from rl_training.experiment.ope.ranking import PolicyEstimate, rank_policies
from rl_training.experiment.ope.returns import with_estimated_returns
from rl_training.experiment.ope.single import first_returns, mean_interval
from rl_training.experiment.ope.training_data import EvaluationData, Seen
from rl_training.experiment.trust import Trust
from rl_training.runtime.engine import Callback
from rl_training.statistics import Interval


class RankedRun(NamedTuple):
    found: PolicyEstimate
    checkpoint: Path
    seen: Seen
    overlaps: list[int]  # positions of other runs in the ranking whose intervals overlap with this one

    @property
    def warnings(self) -> list[str]:
        return [*self.seen.warnings, *self.found.warnings]


class Ranking(NamedTuple):
    runs: list[RankedRun]  # best first
    behaviour_return: float  # discounted, of the episodes of the data
    behaviour_interval: Interval | None
    behaviour_undiscounted_return: float
    gamma: float
    discount: str  # as printed; per row where time steps are uneven
    episodes: int
    notes: list[str]  # about the comparison

    def to_json(self) -> dict[str, Any]:
        """The facts of the data, and `runs` best first."""
        facts = {name: value for name, value in self._asdict().items() if name != "runs"}
        return {**facts, "runs": [self._run_json(run) for run in self.runs]}

    def _run_json(self, run: RankedRun) -> dict[str, Any]:
        return {
            **run.found.to_json(), "warnings": run.warnings, "checkpoint": str(run.checkpoint),
            "trained_on_this_data": run.seen.is_training_data, "shared_episodes": run.seen.shared,
            "overlaps": [str(self.runs[number].found.run_dir) for number in run.overlaps],
        }  # fmt: skip


def rank_runs(
    runs: Sequence[Path], source: str, *, best: bool = False, trust: Trust = (), reading: Mapping[str, Any],
    callbacks: Sequence[Callback] = (), **options: Any,
) -> Ranking:  # fmt: skip
    """Ranks runs or checkpoints on one dataset; raises ValueError if their estimates would not be comparable.

    `reading` has the options of `load_dataset_for`; those that are not given are read from the runs, which must agree.
    """
    agents = [load_agent(run, best=best, trust=trust) for run in runs]
    require_comparable(runs, agents, reading)
    timed = with_time(runs, agents)
    data = load_dataset_for(timed, source, **reading)
    found = rank_policies(runs, data, best=best, trust=trust, callbacks=callbacks, **options)
    used = float(found[0].facts["gamma"])
    discount = describe_discount(data, used, timed)
    by_run = dict(zip(map(Path, runs), agents, strict=True))
    test = EvaluationData(source, data)
    overlaps = overlapping([each.interval for each in found])
    returns = with_estimated_returns(data, used).columns["returns_to_go"][data.first_rows].double()
    return Ranking(
        [RankedRun(each, by_run[each.run_dir].path, test.seen_by(by_run[each.run_dir]), numbers)
         for each, numbers in zip(found, overlaps, strict=True)],
        float(returns.mean()), mean_interval(returns), float(first_returns(data).mean()), used, discount,
        len(returns), [*discount_notes(agents, used, discount), *_reward_notes(agents)],
    )  # fmt: skip


def runs_below(path: Path) -> list[Path]:
    """The path itself if it is a run or a checkpoint; otherwise the runs in its folders, such as several seeds."""
    if (path / CHECKPOINTS).is_dir():
        return [path]
    found = sorted(each.parent for each in path.glob(f"**/{CHECKPOINTS}") if each.is_dir())
    return sorted(found, key=lambda each: (str(each.parent), len(each.name), each.name)) or [path]


def require_comparable(runs: Sequence[Path], agents: Sequence[Agent], reading: Mapping[str, Any]) -> None:
    if twice := [run for number, run in enumerate(runs) if run.resolve() in {each.resolve() for each in runs[:number]}]:
        raise ValueError(f"{twice[0]} is given twice; name each run once")
    first = agents[0]
    for run, agent in zip(runs[1:], agents[1:], strict=True):
        for name in (*SPACES, "action_dim", "action_sizes", *NAMES):
            own, expected = getattr(agent.spec, name), getattr(first.spec, name)
            if differs(name, own, expected):
                raise ValueError(
                    f"the runs cannot be ranked together: {name} is {expected} in {runs[0]} and {own} in {run}; "
                    "rank runs with equal spaces only, such as runs that were trained on the same data"
                )
        for name, option in (("dataset_columns", "--columns"), ("action_range", "--action-range")):
            if not reading.get(name) and getattr(agent.config, name) != getattr(first.config, name):
                raise ValueError(
                    f"{runs[0]} and {run} read their data with different {option}; give {option} for this dataset"
                )


def overlapping(intervals: Sequence[Interval]) -> list[list[int]]:
    """For each interval, the positions of the others that overlap with it."""
    return [
        [other for other, each in enumerate(intervals) if other != number and each.overlaps(interval)]
        for number, interval in enumerate(intervals)
    ]


def _reward_notes(agents: Sequence[Agent]) -> list[str]:
    """Differences in training that do not affect the estimates, which all use the same rewards."""
    if all(agent.config.rewards == agents[0].config.rewards for agent in agents):
        return []
    return ["the runs were trained with different reward transforms; all estimates use the rewards of the data"]
