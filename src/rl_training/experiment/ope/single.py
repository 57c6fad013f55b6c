"""Estimate of one policy by fitted Q evaluation (FQE), each fit on a bootstrap of the episodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms import FQEConfig
from rl_training.data import TransitionDataset
from rl_training.data.datasets.tensors import to_array
from rl_training.data.datasets.trajectories import before_terminals, trajectory_returns
from rl_training.experiment.agent import Agent
from rl_training.experiment.config.messages import validated
from rl_training.experiment.machine import device_of
from rl_training.experiment.ope.coverage import unseen
from rl_training.experiment.ope.discounts import require_used_gamma
from rl_training.experiment.ope.fitting import MEMBERS, UPDATES, fit_policies
from rl_training.experiment.ope.policies import HasAgent, PolicyActions, resolve
from rl_training.experiment.ope.remarks import fit_warnings
from rl_training.runtime.engine import Callback
from rl_training.statistics import Interval, student_interval
from rl_training.types import Policy


class OffPolicyEstimate(NamedTuple):
    """Discounted returns from the first states of the episodes, in the rewards of the data."""

    estimate: float
    interval: Interval  # 95%, see `FQEFit.estimate`; it does not cover states that the data do not visit
    behaviour_return: float  # of the episodes; the rest of truncated ones is estimated
    behaviour_interval: Interval | None  # 95%; None for fewer than three episodes
    behaviour_undiscounted_return: float  # of all rows of the episodes, see `first_returns`
    gamma: float
    episodes: int
    updates: int
    members: int
    unseen_actions: float  # fraction of states whose policy action does not occur in similar states of the data
    warnings: list[str]


def evaluate_policy_offline(
    policy: Agent | HasAgent | Policy, dataset: TransitionDataset | Path | str, *, updates: int = UPDATES,
    members: int = MEMBERS, action_samples: int | None = None, seed: int = 0, device: str = "auto",
    callbacks: Sequence[Callback] = (), **options: Any,
) -> OffPolicyEstimate:  # fmt: skip
    """Estimates a policy's discounted return by fitted Q evaluation; `options` are fields of FQEConfig, such as gamma.

    The policy acts deterministically; with `action_samples`, the values of that many sampled actions are averaged.
    Each member is fitted to a bootstrap of the episodes. Equal seeds give equal bootstraps, so estimates of different
    policies are comparable.
    """
    config, device = validated(FQEConfig, options), device_of(device)
    actor, dataset, spec = resolve(policy, dataset)
    require_used_gamma(dataset, options)
    actions = PolicyActions(actor, action_samples, seed)
    fit = fit_policies(
        dataset, spec, config, [actions],
        updates=updates, members=members, seed=seed, device=device, callbacks=callbacks,
    )  # fmt: skip
    estimate, interval = fit.estimate(0)
    returns = fit.data.columns["returns_to_go"][fit.data.first_rows].double()
    unseen_actions = unseen(dataset, actions, seed)
    return OffPolicyEstimate(
        estimate, interval, behaviour_return=float(returns.mean()), behaviour_interval=mean_interval(returns),
        behaviour_undiscounted_return=float(first_returns(fit.data).mean()),
        gamma=config.gamma, episodes=len(returns), updates=updates, members=members,
        unseen_actions=unseen_actions, warnings=fit_warnings(fit, 0, unseen_actions),
    )  # fmt: skip


def mean_interval(values: Tensor) -> Interval | None:
    if len(values) < 3:
        return None
    return student_interval(float(values.mean()), float(values.std()) / len(values) ** 0.5, len(values) - 1)


def first_returns(data: TransitionDataset) -> Tensor:
    """Undiscounted returns of whole episodes up to a terminal row, also of those that are in several pieces.

    Rows that were left out are not counted, as in `data split`.
    """
    rewards, dones, starts = map(to_array, (data.columns["rewards"], data.columns["dones"] != 0, data.first_rows))
    return torch.from_numpy(trajectory_returns(np.where(before_terminals(dones, starts), rewards, 0.0), starts))
