"""Categorical DQN, C51 (Bellemare et al., 2017, arXiv:1707.06887): returns as a categorical over fixed atoms."""

from __future__ import annotations

import torch
from pydantic import Field, model_validator
from torch import Tensor

from rl_training.algorithms.core.ops import select_action
from rl_training.algorithms.dqn import DQNAlgorithm, DQNConfig, RowLosses
from rl_training.models import Atoms, C51Model
from rl_training.types import Batch


class C51Config(DQNConfig):
    num_atoms: int = Field(51, ge=2, description="number of atoms of the return distribution")
    v_min: float = Field(-10.0, description="lowest atom; lower discounted returns are clipped to it")
    v_max: float = Field(10.0, description="highest atom; higher discounted returns are clipped to it")

    @model_validator(mode="after")
    def _check_range(self) -> C51Config:
        if self.v_min >= self.v_max:
            raise ValueError(f"v_min must be below v_max, got {self.v_min} and {self.v_max}")
        return self


def project_atoms(probabilities: Tensor, returns: Tensor, support: Tensor) -> Tensor:
    """Projects a distribution over returns, both [rows, n], onto `support` [atoms] (equation 7 of the paper)."""
    # Each probability is split linearly between the two nearest atoms. Adding by index is not deterministic everywhere.
    last = len(support) - 1
    places = ((returns - support[0]) / (support[-1] - support[0]) * last).clamp(0, last)
    nearness = (1 - (places.unsqueeze(-2) - torch.arange(last + 1, device=places.device).unsqueeze(-1)).abs()).clamp(0)
    return (nearness * probabilities.unsqueeze(-2)).sum(-1)


def categorical_divergence(targets: Tensor, logits: Tensor) -> Tensor:
    """KL(target || softmax(logits)) per row: the paper's cross-entropy minus the target's entropy."""
    return (torch.xlogy(targets, targets) - targets * logits.log_softmax(-1)).sum(-1)


class C51Algorithm(DQNAlgorithm):
    name = "c51"
    config_type = C51Config
    model_type = C51Model

    @torch.no_grad()
    def loss_target(self, batch: Batch) -> Tensor:
        """Projected distribution of r + gamma * (1 - done) * z over the atoms z at (s', a'); [rows, atoms]."""
        prediction, actions = self.predict_next(batch["next_obs"])
        returns = self.td_target(batch, prediction.support.unsqueeze(-1)).mT
        return project_atoms(select_action(prediction.logits, actions).softmax(-1), returns, prediction.support)

    def row_losses(self, prediction: Atoms, target: Tensor, actions: Tensor) -> RowLosses:
        """KL between the target and the predicted distribution at (s, a)."""
        logits = select_action(prediction.logits, actions)
        losses = categorical_divergence(target, logits)
        values, targets = ((each * prediction.support).sum(-1) for each in (logits.softmax(-1), target))
        ends = {"end_atoms_share": (target[:, 0] + target[:, -1]).mean()}  # large: v_min and v_max are too narrow
        return RowLosses({"loss": losses}, losses, values, targets, ends)
