"""Categorical DQN (Bellemare et al., 2017): returns as probabilities of fixed atoms, fitted to projected targets."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field, model_validator
from torch import Tensor

from rl_training.algorithms.core.config import AlgorithmConfig
from rl_training.algorithms.dqn import DQNAlgorithm, DQNConfig, RowLosses, of_action
from rl_training.models import Atoms, C51Model
from rl_training.types import Batch


class C51Config(DQNConfig):
    num_atoms: int = Field(51, ge=2, description="returns that have a probability")
    v_min: float = Field(-10.0, description="the lowest of them; discounted returns below it are taken for it")
    v_max: float = Field(10.0, description="the highest of them")

    @model_validator(mode="after")
    def _range(self) -> C51Config:
        if self.v_min >= self.v_max:
            raise ValueError(f"v_min must be below v_max, got {self.v_min} and {self.v_max}")
        return self


def project_atoms(probabilities: Tensor, returns: Tensor, support: Tensor) -> Tensor:
    """The distribution over `support` [atoms] of these probabilities of any returns, both [rows, n].

    Each return's probability goes to the two atoms beside it, by nearness; one beyond the ends goes to the end. Written
    as a dense product, which is the same on every device and every time, unlike adding by index.
    """
    last = len(support) - 1
    places = ((returns - support[0]) / (support[-1] - support[0]) * last).clamp(0, last)
    nearness = (1 - (places.unsqueeze(-2) - torch.arange(last + 1, device=places.device).unsqueeze(-1)).abs()).clamp(0)
    return (nearness * probabilities.unsqueeze(-2)).sum(-1)


def categorical_divergence(targets: Tensor, logits: Tensor) -> Tensor:
    """KL of the network's distribution from the target's, by row: the paper's cross-entropy, but zero at a fit."""
    return (torch.xlogy(targets, targets) - targets * logits.log_softmax(-1)).sum(-1)


class C51Algorithm(DQNAlgorithm):
    name = "c51"
    config_type: ClassVar[type[AlgorithmConfig]] = C51Config
    model_type = C51Model

    def expected(self, seen: Atoms) -> Tensor:
        return seen.expected()

    @torch.no_grad()
    def target_of(self, batch: Batch) -> Tensor:
        seen, best = self.look_ahead(batch["next_obs"])
        returns = self.backup(batch, seen.support.unsqueeze(-1)).mT
        return project_atoms(of_action(seen.logits, best).softmax(-1), returns, seen.support)

    def compare(self, seen: Atoms, target: Tensor, actions: Tensor) -> RowLosses:
        logits = of_action(seen.logits, actions)
        losses = categorical_divergence(target, logits)
        values, targets = ((each * seen.support).sum(-1) for each in (logits.softmax(-1), target))
        # Much of it at the ends says that v_min and v_max are too near.
        ends = {"end_atoms_share": (target[:, 0] + target[:, -1]).mean()}
        return RowLosses({"loss": losses}, losses, values, targets, ends)
