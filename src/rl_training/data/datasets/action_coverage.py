"""How far a policy goes beyond what the data show of its actions."""

from __future__ import annotations

import torch
from torch import Tensor

NEIGHBOURS = 50  # states that count as alike
ORDINARY = 0.95  # share of the data's own actions that are to pass as ordinary


def unseen_action_fraction(obs: Tensor, actions: Tensor, chosen: Tensor) -> float:
    """In what share of states a policy's action is unlike all that the data did in the states most like it.

    `chosen` are the policy's actions in the first rows of `obs`. Unlike means: farther from the nearest action taken
    in the 50 nearest other states than 95% of the data's own actions are. So data that judge themselves get 0.05 at
    most, and the measure needs no unit. Discrete actions are 0 or 1 apart.
    """
    nearest = _nearest_states(obs.flatten(1).float(), len(chosen))
    limit = _gap(actions[: len(chosen)], actions[nearest]).quantile(ORDINARY)
    return float((_gap(chosen, actions[nearest]) > limit).float().mean())


def _nearest_states(obs: Tensor, count: int) -> Tensor:
    """For each of the first `count` rows, the others that are nearest; [count, neighbours]."""
    scaled = (obs - obs.mean(0)) / (obs.std(0) + 1e-3)
    distances = torch.cdist(scaled[:count], scaled)
    distances.fill_diagonal_(torch.inf)  # a state is not its own witness
    return distances.topk(min(NEIGHBOURS, len(obs) - 1), largest=False).indices


def _gap(actions: Tensor, others: Tensor) -> Tensor:
    """From each action [rows, ...] to the nearest of its others [rows, neighbours, ...]."""
    if not actions.is_floating_point():
        return (actions.unsqueeze(1) != others).all(1).float()
    return (actions.unsqueeze(1) - others).square().sum(-1).amin(1).sqrt()
