"""The commands that score the runs of a cell."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from rl_training.experiment.bench.plan import EVALUATION_SEED, BenchPlan


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


def shown(words: Sequence[str]) -> str:
    return shlex.join(["rl-training", *words])


def is_scored_as(result: Mapping[str, Any], plan: BenchPlan) -> bool:
    """Whether the scores of a result.json are those of the plan: the command that repeats them is the same."""
    last, wanted = (result.get("commands") or [""])[-1], shown(evaluate_command(plan))
    if not last.startswith(shown(["evaluate"])):
        return True  # nothing is known about the scores
    return last in (wanted, f"{wanted} --seed {EVALUATION_SEED}")  # earlier versions named the seed of estimates, too


def _estimate_options(plan: BenchPlan) -> dict[str, Any]:
    given = {"updates": plan.updates, "gamma": plan.gamma}
    return {name: value for name, value in given.items() if value is not None}
