"""Ranks trained policies by off-policy estimates, fitted together as one population."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from rl_training.data import TransitionDataset
from rl_training.experiment.agent import load_agent
from rl_training.experiment.ope.coverage import unseen
from rl_training.experiment.ope.fitting import FQEFit, fqe_config
from rl_training.experiment.ope.policies import PolicyActions, load_dataset_for, resolve, with_policy_actions
from rl_training.experiment.ope.remarks import fit_warnings
from rl_training.experiment.ope.single import MEMBERS, UPDATES, require_counts
from rl_training.runtime.engine import Callback
from rl_training.statistics import Interval, student_interval

ESTIMATORS = ("fqe", "wis", "dr")


@dataclass(frozen=True)
class EstimatorResult:
    """Result of one estimator, or the reason why there is none."""

    estimate: float | None = None
    interval: Interval | None = None  # 95%
    effective_sample_size: float | None = None  # in episodes; importance sampling only
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "estimate": self.estimate, "interval": None if self.interval is None else list(self.interval),
            "effective_sample_size": self.effective_sample_size, "reason": self.reason,
        }  # fmt: skip


@dataclass(frozen=True)
class PolicyEstimate:
    """Discounted return of one policy from the first states of the episodes, in the rewards of the data."""

    run_dir: Path
    estimate: float
    interval: Interval  # 95%
    warnings: list[str]
    estimates: dict[str, EstimatorResult]  # by estimator
    facts: dict[str, Any] = field(default_factory=dict)  # gamma, episodes, updates, members, ...

    def to_json(self) -> dict[str, Any]:
        return {
            "run_dir": str(self.run_dir), "estimate": self.estimate, "interval": list(self.interval),
            "warnings": self.warnings, "estimates": {name: each.to_json() for name, each in self.estimates.items()},
            **self.facts,
        }  # fmt: skip


def rank_policies(
    runs: Sequence[Path | str], dataset: TransitionDataset | Path | str, *,
    estimators: Sequence[str] = ESTIMATORS, updates: int = UPDATES, members: int = MEMBERS,
    action_samples: int | None = None, best: bool = False, seed: int = 0, device: str = "auto",
    callbacks: Sequence[Callback] = (), **options: Any,
) -> list[PolicyEstimate]:  # fmt: skip
    """Estimates the policies of several runs or checkpoints and returns them best first.

    `options` are fields of FQEConfig, such as gamma. The data are read with the first run's dataset options.
    """
    agents = [load_agent(Path(run), best=best) for run in runs]
    config = fqe_config(options)
    data = dataset if isinstance(dataset, TransitionDataset) else load_dataset_for(agents[0], dataset)
    policies = [PolicyActions(resolve(agent, data)[0], action_samples, seed) for agent in agents]
    require_counts(updates, members, data)
    device = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    rows = with_policy_actions(data, policies, config.gamma).to(device)
    fit = FQEFit(rows, data.spec, config, policies, fits=members, seed=seed)
    fit.run(updates, callbacks)
    values, found = fit.values(), []
    for number, (run, policy) in enumerate(zip(runs, policies, strict=True)):
        estimate = float(values[number].mean())
        error = float(fit.source.mean_over_episodes(values[number]).std())
        interval = student_interval(estimate, error, members - 1)
        seen = unseen(data, policy, seed)
        estimates = {name: EstimatorResult(reason="not implemented yet") for name in estimators}
        estimates["fqe"] = EstimatorResult(estimate, interval)
        facts = {"gamma": config.gamma, "episodes": len(fit.obs), "updates": updates, "members": members,
                 "unseen_actions": seen}  # fmt: skip
        warnings = fit_warnings(fit, rows, number, seen)
        found.append(PolicyEstimate(Path(run), estimate, interval, warnings, estimates, facts))
    return sorted(found, key=lambda each: -each.estimate)
