"""Scaling of replayed rewards by running statistics of discounted returns (Lee et al., 2025, arXiv:2502.15280)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rl_training.models.encoders import Normalizer, Statistics

LIMIT = 5.0  # largest absolute discounted return after scaling


class ReplayRewardScale(Normalizer):
    """Divides rewards by max(std of the discounted returns, largest absolute one / LIMIT).

    While all returns are 0, rewards keep their values: those of other goals and of model rollouts need not be 0.
    """

    largest: Tensor

    def __init__(self) -> None:
        super().__init__(())
        self.register_buffer("largest", torch.zeros(()))

    def forward(self, rewards: Tensor) -> Tensor:
        scale = torch.maximum(self.std, self.largest / LIMIT)
        return rewards / torch.where(self.largest > 0, scale, 1.0)


@dataclass(frozen=True)
class ReturnStatistics:
    """Statistics of a `ReplayRewardScale`, changed in place; in a population, they have a leading axis."""

    returns: Statistics
    largest: Tensor
    gamma: float

    @torch.no_grad()
    def add(self, sums: Tensor, rewards: Tensor, ends: Tensor) -> None:
        """Adds a step [*population, envs] to the discounted `sums` of running episodes, and these to the statistics.

        `ends` is 1 where an episode terminated or was truncated.
        """
        sums.mul_(self.gamma).add_(rewards)
        self.returns.merge(sums)
        self.largest.copy_(torch.maximum(self.largest, sums.abs().amax(-1)))
        sums.mul_(1 - ends)
