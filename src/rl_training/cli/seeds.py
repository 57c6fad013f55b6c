"""Several seeds of one config: which, where, and what they come to together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_training.experiment.config.train_config import TrainConfig
    from rl_training.experiment.run import TrainResult

MOST_SEEDS = 1000


def parse_seeds(text: str) -> list[int]:
    """0-4 is 0, 1, 2, 3 and 4; 0,2,5 is those three."""
    seeds: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d{1,18})(?:-(\d{1,18}))?\s*", part)
        if ends is None:
            raise ValueError(f"--seeds must be like 0-4 or 0,2,5, got {text!r}")
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if last < first or last - first >= MOST_SEEDS:
            raise ValueError(f"--seeds must be ranges upwards of at most {MOST_SEEDS} seeds, got {text!r}")
        seeds += range(first, last + 1)
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"--seeds must name each seed once, got {text!r}")
    return seeds


def seed_configs(config: TrainConfig, seeds: Sequence[int]) -> list[TrainConfig]:
    """The config of each seed; its run is `seed_<s>` in the output directory."""
    from rl_training.experiment.manager import ExperimentManager
    from rl_training.experiment.run import default_directory

    if config.output_dir is None:
        alone = default_directory(config)
        together = alone.with_name(f"{alone.name.removesuffix(str(config.seed))}{written(seeds)}")
        config = config.model_copy(update={"output_dir": str(together)})
    return ExperimentManager(config).seed_configs(seeds)


def written(seeds: Sequence[int]) -> str:
    """As part of a directory's name: 0-4, or 0_2_5."""
    in_a_row = len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]}-{seeds[-1]}" if in_a_row else "_".join(map(str, seeds))


def summary(seeds: Sequence[int], results: Sequence[TrainResult]) -> dict[str, Any]:
    """The keys of one run for all of them: steps, updates and their rate are sums, since seeds run together.

    A whole has no checkpoint of its own; each of `runs` has.
    """
    runs = [{"seed": seed, **result.to_json()} for seed, result in zip(seeds, results, strict=True)]
    statuses = [run["status"] for run in runs]
    return {
        "status": next((status for status in ("stopped", "early_stop") if status in statuses), "finished"),
        "run_dir": str(Path(runs[0]["run_dir"]).parent),
        "checkpoint": None,
        "best_checkpoint": None,
        "steps": sum(run["steps"] for run in runs),
        "updates": sum(run["updates"] for run in runs),
        "updates_per_second": sum(run["updates_per_second"] for run in runs),
        "seconds": max(run["seconds"] for run in runs),
        "metrics": mean_metrics([run["metrics"] for run in runs]),
        "evaluation": mean_evaluation([run["evaluation"] for run in runs]),
        "stop_reason": next((run["stop_reason"] for run in runs if run["stop_reason"]), None),
        "runs": runs,
    }


def mean_metrics(metrics: Sequence[dict[str, float | None]]) -> dict[str, float | None]:
    """Of each metric that every seed has."""
    names = [name for name in metrics[0] if all(isinstance(each.get(name), int | float) for each in metrics)]
    return {name: fmean(each[name] for each in metrics) for name in names}  # type: ignore[misc]  # numbers, see above


def mean_evaluation(evaluations: Sequence[dict[str, Any] | None]) -> dict[str, Any] | None:
    """`returns` holds each seed's mean, and mean and deviation are over them; None unless all were evaluated."""
    played = [evaluation for evaluation in evaluations if evaluation is not None]
    if len(played) < len(evaluations):
        return None
    returns = [evaluation["return_mean"] for evaluation in played]
    together = {
        "return_mean": fmean(returns),
        "return_std": pstdev(returns),
        "returns": returns,
        "lengths": [fmean(evaluation["lengths"]) for evaluation in played],
        "episodes": sum(evaluation["episodes"] for evaluation in played),
    }
    scores = [evaluation["normalized_score"] for evaluation in played if "normalized_score" in evaluation]
    return {**together, "normalized_score": fmean(scores)} if scores else together
