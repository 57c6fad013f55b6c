"""Formulas that two or more algorithms use."""

from __future__ import annotations

import torch
from torch import Tensor


def bootstrapped(rewards: Tensor, dones: Tensor, next_values: Tensor, discounts: Tensor | float) -> Tensor:
    """Targets that go on with the next value, discounted alike or by row; a termination alone ends the future."""
    return rewards + discounts * (1 - dones) * next_values


def ensemble_squared_error(predictions: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error of each copy [copies, rows] to the same targets [rows], summed over the copies."""
    return (predictions - targets).square().mean(-1).sum()


def pick(values: Tensor, actions: Tensor) -> Tensor:
    """The entry of each row that its action names."""
    return values.gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def expectile_loss(error: Tensor, expectile: float) -> Tensor:
    """Squared error, weighted `expectile` above the estimate and `1 - expectile` below it."""
    return (torch.where(error > 0, expectile, 1 - expectile) * error.square()).mean()
