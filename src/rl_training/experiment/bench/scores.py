"""The scores of the runs of a cell, and the commands that compute them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rl_training.experiment.bench.plan import EVALUATION_SEED, BenchPlan
from rl_training.messages import command


def is_estimate(score: Mapping[str, Any]) -> bool:
    """Whether a stored score is an off-policy estimate, and not the mean return of evaluation episodes."""
    return "estimate" in score


def value_of(score: Mapping[str, Any]) -> float:
    return float(score["estimate"] if is_estimate(score) else score["return_mean"])


def scoring_command(plan: BenchPlan, modules: str, runs: Sequence[str]) -> list[str]:
    """A module to run, and its arguments; `modules` are those that the runs may import, separated by commas."""
    played = plan.score == "episodes"
    options = {"episodes": plan.episodes} if played else {"test": plan.test, **_estimate_options(plan)}
    return ["rl_training.experiment.bench.scoring", json.dumps(options), modules, *runs]


def evaluate_command(plan: BenchPlan) -> list[str]:
    """The arguments after `rl-training` that repeat the score of a run, or the estimates of all runs of the cell."""
    if plan.score == "episodes":
        return ["evaluate", "RUN", "--episodes", str(plan.episodes), "--seed", str(EVALUATION_SEED)]
    given = [word for name, value in _estimate_options(plan).items() for word in (f"--{name}", str(value))]
    return ["evaluate", "RUNS", "--ope", str(plan.test), *given]


def is_scored_as(result: Mapping[str, Any], plan: BenchPlan) -> bool:
    """Whether the scores of a result.json are those of the plan: the command that repeats them is the same."""
    last, wanted = (result.get("commands") or [""])[-1], command(*evaluate_command(plan))
    if not last.startswith(command("evaluate")):
        return True  # nothing is known about the scores
    return last in (wanted, f"{wanted} --seed {EVALUATION_SEED}")  # earlier versions named the seed of estimates, too


def _estimate_options(plan: BenchPlan) -> dict[str, Any]:
    given = {"updates": plan.updates, "gamma": plan.gamma}
    return {name: value for name, value in given.items() if value is not None}
