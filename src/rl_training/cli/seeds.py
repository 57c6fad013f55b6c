"""The option --seeds: parsing, run directories, and the summary of all seeds."""

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


def parse_seeds(text: str, option: str = "--seeds") -> list[int]:
    """Parses 0-4 or 0,2,5."""
    seeds: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d{1,18})(?:-(\d{1,18}))?\s*", part)
        if ends is None:
            raise ValueError(f"{option} must be like 0-4 or 0,2,5, got {text!r}")
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if last < first or last - first >= MOST_SEEDS:
            raise ValueError(f"{option} must be increasing ranges of at most {MOST_SEEDS} seeds, got {text!r}")
        seeds += range(first, last + 1)
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"{option} must not repeat a seed, got {text!r}")
    return seeds


def seed_configs(config: TrainConfig, seeds: Sequence[int]) -> list[TrainConfig]:
    """The config of each seed, with `seed_<s>` in the output directory as its run directory."""
    from rl_training.experiment.manager import ExperimentManager
    from rl_training.experiment.run_directory import default_directory

    if config.output_dir is None:
        parent = default_directory(config, seeds_name(seeds))
        config = config.model_copy(update={"output_dir": str(parent)})
    return ExperimentManager(config).seed_configs(seeds)


def seeds_name(seeds: Sequence[int]) -> str:
    """The seeds as part of a directory name: 0-4, or 0_2_5."""
    consecutive = len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]}-{seeds[-1]}" if consecutive else "_".join(map(str, seeds))


def summary(seeds: Sequence[int], results: Sequence[TrainResult]) -> dict[str, Any]:
    """The result of all seeds with the keys of one run; steps and updates are sums. `runs` lists the checkpoints."""
    runs = [{"seed": seed, **result.report()} for seed, result in zip(seeds, results, strict=True)]
    statuses = [run["status"] for run in runs]
    return {
        "status": next((status for status in ("stopped", "early_stop") if status in statuses), "finished"),
        "run_dir": str(Path(runs[0]["run_dir"]).parent), "checkpoint": None, "best_checkpoint": None,
        "steps": sum(run["steps"] for run in runs), "updates": sum(run["updates"] for run in runs),
        "updates_per_second": sum(run["updates_per_second"] for run in runs),
        "seconds": max(run["seconds"] for run in runs),
        "metrics": mean_metrics([run["metrics"] for run in runs]),
        "evaluation": mean_evaluation([run["evaluation"] for run in runs]),
        "stop_reason": next((run["stop_reason"] for run in runs if run["stop_reason"]), None),
        "trained": any(run["trained"] for run in runs), "runs": runs,
    }  # fmt: skip


def mean_metrics(metrics: Sequence[dict[str, float | None]]) -> dict[str, float | None]:
    """The mean of each metric that every seed has."""
    names = [name for name in metrics[0] if all(isinstance(each.get(name), int | float) for each in metrics)]
    return {name: fmean(each[name] for each in metrics) for name in names}  # type: ignore[misc]  # numbers, as checked above


def mean_evaluation(evaluations: Sequence[dict[str, Any] | None]) -> dict[str, Any] | None:
    """Mean and standard deviation over the mean returns of the seeds; None unless all were evaluated."""
    known = [evaluation for evaluation in evaluations if evaluation is not None]
    if len(known) < len(evaluations):
        return None
    returns = [evaluation["return_mean"] for evaluation in known]
    summary: dict[str, Any] = {
        "return_mean": fmean(returns), "return_std": pstdev(returns), "returns": returns,
        "lengths": [fmean(evaluation["lengths"]) for evaluation in known],
        "episodes": sum(evaluation["episodes"] for evaluation in known),
    }  # fmt: skip
    for name in ("normalized_score", "success_rate"):
        values = [evaluation[name] for evaluation in known if name in evaluation]
        summary |= {name: fmean(values)} if values else {}
    return summary
