"""How far a policy's actions are from those of the data."""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training import streams
from rl_training.data import TransitionDataset
from rl_training.experiment.ope.policies import PolicyActions
from rl_training.models.encoders import padded_std

PROBES, COMPARED = 1_000, 20_000  # states to check for unseen actions, and states to compare them with
NEIGHBOURS = 50  # nearest states to compare actions with
QUANTILE = 0.95  # of the dataset's own action distances; larger distances count as unseen


def unseen(dataset: TransitionDataset, policy_actions: PolicyActions, seed: int) -> float:
    obs, actions = dataset.columns["obs"], dataset.columns["actions"]
    neighbours = min(COMPARED, 20_000_000 // obs[0].numel())  # fewer for images, to limit memory
    shuffled = torch.randperm(len(obs), generator=streams.generator(seed, "probes"))[:neighbours].to(obs.device)
    return unseen_action_fraction(obs[shuffled], actions[shuffled], policy_actions.at(obs[shuffled[:PROBES]])[:, 0])


def unseen_action_fraction(obs: Tensor, actions: Tensor, chosen: Tensor) -> float:
    """Fraction of states in which the policy's action is far from the dataset's actions in similar states."""
    # `chosen` are the policy's actions in the first rows of `obs`. An action's distance is that to the nearest action
    # in the nearest other states; Discrete actions are 0 or 1 apart. The dataset's own actions score at most 0.05.
    nearest = _nearest_states(obs.flatten(1).float(), len(chosen))
    limit = _distance(actions[: len(chosen)], actions[nearest]).quantile(QUANTILE)
    return float((_distance(chosen, actions[nearest]) > limit).float().mean())


def _nearest_states(obs: Tensor, count: int) -> Tensor:
    """The nearest other rows of each of the first `count` rows, [count, neighbours]."""
    scaled = (obs - obs.mean(0)) / padded_std(obs)
    distances = torch.cdist(scaled[:count], scaled)
    distances.fill_diagonal_(torch.inf)  # excludes the state itself
    return distances.topk(min(NEIGHBOURS, len(obs) - 1), largest=False).indices


def _distance(actions: Tensor, others: Tensor) -> Tensor:
    """Distance from each action [rows, ...] to the nearest of `others` [rows, neighbours, ...]."""
    if not actions.is_floating_point():
        others = others.view(*others.shape[:2], -1)  # a MultiDiscrete action differs if one of its choices does
        return (actions.view(len(actions), 1, -1) != others).any(-1).all(1).float()
    return (actions.unsqueeze(1) - others).square().sum(-1).amin(1).sqrt()
