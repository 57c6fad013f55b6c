"""Quantile-regression DQN (Dabney et al., 2018): returns as quantiles at fixed, even fractions."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from rl_training.algorithms.core.config import AlgorithmConfig
from rl_training.algorithms.dqn import DQNAlgorithm, DQNConfig, RowLosses, of_action
from rl_training.models import DQNModel, QRDQNModel
from rl_training.types import Batch


class QuantileConfig(DQNConfig):
    kappa: PositiveFloat = Field(1.0, description="errors are squared below this, and linear above")


class QRDQNConfig(QuantileConfig):
    num_quantiles: PositiveInt = Field(200, description="quantiles of each action's return")


def quantile_huber_loss(errors: Tensor, fractions: Tensor, kappa: float) -> Tensor:
    """Of errors [rows, quantiles, targets], target minus quantile: the mean over targets, summed over quantiles.

    A quantile at fraction tau pays tau where targets lie above it, and 1 - tau below.
    """
    sizes = errors.abs()
    huber = torch.where(sizes <= kappa, 0.5 * errors.square(), kappa * (sizes - 0.5 * kappa))
    weights = (fractions.unsqueeze(-1) - (errors < 0).float()).abs()
    return (weights * huber / kappa).mean(-1).sum(-1)


class QRDQNAlgorithm(DQNAlgorithm):
    name = "qr_dqn"
    config_type: ClassVar[type[AlgorithmConfig]] = QRDQNConfig
    model_type: ClassVar[type[DQNModel]] = QRDQNModel

    def expected(self, seen: Any) -> Tensor:  # Quantiles or ProposedQuantiles
        values: Tensor = seen.expected()
        return values

    @torch.no_grad()
    def target_of(self, batch: Batch) -> Tensor:
        seen, best = self.look_ahead(batch["next_obs"])
        return self.backup(batch, of_action(seen.quantile_hats, best).mT).mT

    def compare(self, seen: Any, target: Tensor, actions: Tensor) -> RowLosses:
        quantiles = of_action(seen.quantile_hats, actions)
        errors = target.unsqueeze(-2) - quantiles.unsqueeze(-1)
        losses = quantile_huber_loss(errors, seen.tau_hats, self.config.kappa)
        values = of_action(self.expected(seen), actions)
        return RowLosses({"loss": losses}, errors.abs().mean((-2, -1)), values, target.mean(-1))
