"""Log-probabilities of the data's actions under a policy: the policy to evaluate, or the behaviour policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rl_training import streams
from rl_training.algorithms import BCAlgorithm, BCConfig, Learner, Updater
from rl_training.data import TransitionDataset
from rl_training.data.datasets.actions import log_units, with_action_range
from rl_training.data.readers.names import LOGGED
from rl_training.experiment.ope.policies import CHUNK, PolicyActions
from rl_training.models.heads import Gaussian, SquashedGaussian, normal_log_prob

CLONING = BCConfig(hidden_sizes=(64, 64), learning_rate=1e-3, normalize_obs=True)
CLONING_UPDATES = 2_000
DETERMINISTIC = "a deterministic policy with Box actions has no importance weights"
EDGE = 1e-3  # actions this close to a bound count as clipped, and have a probability instead of a density
TINY = 1e-6  # distance to a bound at which the density of a squashed Gaussian is still finite


class NoWeights(Exception):
    """The reason why importance weights cannot be computed."""


class Behaviour(NamedTuple):
    log_probs: Tensor  # [rows], double
    cloned: bool


def behaviour_log_probs(dataset: TransitionDataset, seed: int) -> Behaviour:
    """Reads the behaviour policy's log-probabilities from the data, or clones the behaviour policy."""
    logged = logged_column(dataset)
    if logged is not None:
        return Behaviour(_logged(dataset, logged), cloned=False)
    return Behaviour(_cloned(dataset, seed), cloned=True)


def logged_column(dataset: TransitionDataset) -> str | None:
    """The column with the behaviour policy's probabilities; without it, the behaviour is cloned."""
    return next((name for name in LOGGED if name in dataset.columns), None)


def _logged(dataset: TransitionDataset, name: str) -> Tensor:
    column = dataset.columns[name].double().reshape(len(dataset), -1)
    if column.shape[1] != 1:
        raise ValueError(f"{name} must have one number per row, got {column.shape[1]}")
    values = column.squeeze(1) if name == "action_logprob" else column.squeeze(1).log()
    is_discrete = dataset.spec.action_kind != "box"
    if not bool(values.isfinite().all()) or (is_discrete and bool((values > 1e-6).any())):
        kind = "finite and at most 0" if name == "action_logprob" else "in (0, 1]"
        raise ValueError(f"{name} must be {kind if is_discrete else 'finite'} in every row of the data")
    return values if is_discrete else values + log_units(with_action_range(dataset.spec, dataset.action_range))


def _cloned(dataset: TransitionDataset, seed: int) -> Tensor:
    try:
        BCAlgorithm.check_spec(dataset.spec)
    except TypeError as error:
        raise NoWeights(f"the behaviour policy cannot be cloned ({error}); log its action_logprob") from None
    with streams.fork(seed, "behaviour"):
        learner = BCAlgorithm.build(dataset.spec, CLONING).to(dataset.columns["obs"].device)
    columns = {name: dataset.columns[name] for name in ("obs", "actions", "rewards", "next_obs", "dones", "truncated")}
    source = TransitionDataset(columns, episode_ends=dataset.episode_ends, spec=dataset.spec)
    source.seed(streams.derive(seed, "cloning"))
    learner.prepare(columns)
    Updater([learner]).run(source, CLONING_UPDATES)
    return log_probs_of(lambda obs: learner.model.actor(learner.normalizer(obs)), columns["obs"], columns["actions"])


def policy_log_probs(actions: PolicyActions, dataset: TransitionDataset, *, at_bounds: bool = True) -> Tensor:
    """Log-probabilities [rows] of the data's actions; -inf where a deterministic policy takes another action.

    `at_bounds` is that of `clipped_log_prob`. Logged densities must be compared with densities everywhere.
    """
    obs, taken = dataset.columns["obs"], dataset.columns["actions"]
    learner: Any = actions.policy
    greedy = None if taken.is_floating_point() else PolicyActions(learner, None, 0).at(obs)
    if greedy is not None and (actions.samples is None or bool((actions.at(obs) == greedy).all())):
        is_taken = (greedy.squeeze(1) == taken).view(len(taken), -1).all(1)
        return torch.where(is_taken, 0.0, -torch.inf).double()
    if actions.samples is None:
        raise NoWeights(f"{DETERMINISTIC}; evaluate its sampled actions (--action-samples 10)")
    if getattr(type(learner), "act", None) is not Learner.act:
        raise NoWeights("the probabilities of its sampled actions are unknown")
    return log_probs_of(
        lambda rows: learner.model.actor(learner.normalizer(rows.to(actions.device))), obs, taken.to(actions.device),
        at_bounds=at_bounds,
    ).to(obs.device)  # fmt: skip


@torch.no_grad()
def log_probs_of(policy: Callable[[Tensor], Any], obs: Tensor, actions: Tensor, *, at_bounds: bool = True) -> Tensor:
    parts = zip(obs.split(CHUNK), actions.split(CHUNK), strict=True)
    return torch.cat([_log_prob(policy(rows), taken, at_bounds) for rows, taken in parts]).double()


def _log_prob(policy: Any, actions: Tensor, at_bounds: bool) -> Tensor:
    if isinstance(policy, Gaussian | SquashedGaussian):
        return clipped_log_prob(policy, actions, at_bounds=at_bounds)
    if not hasattr(policy, "log_prob"):
        raise NoWeights(DETERMINISTIC)
    return torch.as_tensor(policy.log_prob(actions))


def clipped_log_prob(policy: Gaussian | SquashedGaussian, actions: Tensor, *, at_bounds: bool = True) -> Tensor:
    """Log-density of actions inside the bounds; log-probability of reaching a bound for those that are clipped to it.

    The second case makes a Gaussian and a squashed Gaussian comparable, because the density of a squashed one is
    unbounded at a bound. `at_bounds=False` computes densities everywhere.
    """
    squashed = isinstance(policy, SquashedGaussian)
    edge = EDGE if at_bounds else TINY
    inside = actions.clamp(-1 + edge, 1 - edge)
    raw = inside.atanh() if squashed else inside
    density = torch.stack([
        normal_log_prob(*(each.unsqueeze(-1) for each in parts))
        for parts in zip(raw.unbind(-1), policy.mean.unbind(-1), policy.log_std.unbind(-1), strict=True)
    ], -1)  # fmt: skip
    if squashed:
        density = density - (1 - inside.square()).log()
    beyond = torch.special.log_ndtr(inside.sign() * (policy.mean - raw) * (-policy.log_std).exp())
    return torch.where((actions.abs() >= 1 - EDGE) & at_bounds, beyond, density).sum(-1)
