"""Ranks trained policies by off-policy estimates, fitted together as one population."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rl_training.algorithms import FQEConfig
from rl_training.data import TransitionDataset
from rl_training.experiment.agent import load_agent
from rl_training.experiment.config.messages import validated
from rl_training.experiment.machine import device_of
from rl_training.experiment.ope.coverage import unseen
from rl_training.experiment.ope.discounts import require_used_gamma, with_time
from rl_training.experiment.ope.fitting import MEMBERS, UPDATES, FQEFit, fit_policies
from rl_training.experiment.ope.importance import (
    EstimatorResult,
    Weights,
    doubly_robust,
    importance_weights,
    weighted_importance_sampling,
)
from rl_training.experiment.ope.policies import PolicyActions, load_dataset_for, resolve
from rl_training.experiment.ope.probabilities import (
    Behaviour,
    NoWeights,
    behaviour_log_probs,
    logged_column,
    policy_log_probs,
)
from rl_training.experiment.ope.remarks import fit_warnings, importance_warnings, range_warnings
from rl_training.experiment.trust import Trust
from rl_training.runtime.engine import Callback
from rl_training.statistics import Interval

ESTIMATORS = ("fqe", "wis", "dr")
# Cloned behaviour policies, and values in doubly robust estimates, err in one direction, which no bootstrap shows. The
# width was chosen with benchmarks/ope_calibration.py, on other checkpoints than those of the stored results.
FIT_ERROR = 0.5  # of the std of the returns; for WIS and DR


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
    action_samples: int | None = None, best: bool = False, trust: Trust = (), seed: int = 0, device: str = "auto",
    callbacks: Sequence[Callback] = (), **options: Any,
) -> list[PolicyEstimate]:  # fmt: skip
    """Estimates the policies of several runs or checkpoints and returns them best first, by fitted Q evaluation.

    `estimators` names what else to compute: "wis" and "dr". `options` are fields of FQEConfig, such as gamma. The
    data are read with the dataset options of the first run, or of the first one that discounts by time. Policies act
    deterministically; with `action_samples`, the values of that many sampled actions are averaged.
    """
    if unknown := [name for name in estimators if name not in ESTIMATORS]:
        raise ValueError(f"unknown estimator {unknown[0]!r}; choose one of {', '.join(ESTIMATORS)}")
    config, device = validated(FQEConfig, options), device_of(device)
    agents = [load_agent(Path(run), best=best, trust=trust) for run in runs]
    data = dataset if isinstance(dataset, TransitionDataset) else load_dataset_for(with_time(runs, agents), dataset)
    require_used_gamma(data, options)
    resolved = [resolve(agent, data) for agent in agents]
    policies = [PolicyActions(policy, action_samples, seed) for policy, _, _ in resolved]
    spec = max((spec for _, _, spec in resolved), key=lambda spec: spec.action_dim)
    fit = fit_policies(
        data, spec, config, policies,
        updates=updates, members=members, seed=seed, device=device, callbacks=callbacks,
    )  # fmt: skip
    ranking = Ranker(fit, data.to(device), estimators, seed)
    facts = {"gamma": config.gamma, "episodes": len(fit.obs), "updates": updates, "members": members}
    found = [
        ranking.estimate(Path(run), number, policy, facts)
        for number, (run, policy) in enumerate(zip(runs, policies, strict=True))
    ]
    return sorted(found, key=lambda each: -each.estimate)


class Ranker:
    """Estimates of each policy by every estimator, from the fits of all."""

    def __init__(self, fit: FQEFit, data: TransitionDataset, estimators: Sequence[str], seed: int) -> None:
        self.fit, self.data, self.estimators, self.seed = fit, data, estimators, seed

    def estimate(self, run: Path, number: int, policy: PolicyActions, facts: dict[str, Any]) -> PolicyEstimate:
        estimate, interval = self.fit.estimate(number)
        estimates = {"fqe": EstimatorResult(estimate, interval), **self.by_importance(number, policy)}
        seen = unseen(self.data, policy, self.seed)
        warnings = [
            *fit_warnings(self.fit, number, seen), *range_warnings(self.fit.data, estimate, interval),
            *importance_warnings(estimates, self.data.incomplete),
        ]  # fmt: skip
        return PolicyEstimate(run, estimate, interval, warnings, estimates, {**facts, "unseen_actions": seen})

    @property
    def fit_error(self) -> float:
        return FIT_ERROR * self.fit.value_std

    def by_importance(self, number: int, policy: PolicyActions) -> dict[str, EstimatorResult]:
        """WIS and DR, or the reason why there are no importance weights."""
        wanted = [name for name in self.estimators if name != "fqe"]
        try:
            weights = self.weights(policy) if wanted else None
        except NoWeights as error:
            return {name: EstimatorResult(reason=str(error)) for name in wanted}
        if weights is None:
            return {}
        found: dict[str, tuple[float, Interval | None]] = {}
        if "wis" in wanted:
            value, interval = weighted_importance_sampling(self.fit.data, self.fit.episodes, weights, self.seed)
            known = interval.widened(self.fit_error if self.behaviour.cloned else 0.0)
            # Products that are cut to a window bias WIS by an unknown amount.
            found["wis"] = (value, known if weights.window is None else None)
        if "dr" in wanted:
            errors = self.fit.td_errors(number)
            value, interval = doubly_robust(self.fit.episodes, weights, errors, self.fit.values()[number], self.seed)
            found["dr"] = (value, interval.widened(self.fit_error))
        return {
            name: EstimatorResult(*found[name], weights.effective, weights.window, self.behaviour.cloned)
            for name in wanted
        }

    def weights(self, policy: PolicyActions) -> Weights:
        log_probs = policy_log_probs(policy, self.data, at_bounds=logged_column(self.data) is None)
        weights = importance_weights(self.fit.episodes, log_probs - self.behaviour.log_probs)
        if not weights.is_useful:
            raise NoWeights("at some step no episode of the data takes the policy's action; it needs more data")
        return weights

    @cached_property
    def behaviour(self) -> Behaviour:
        return behaviour_log_probs(self.data, self.seed)
