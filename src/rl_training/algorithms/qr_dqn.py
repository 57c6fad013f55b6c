"""Quantile regression DQN (Dabney et al., 2018, arXiv:1710.10044): returns as quantiles at fixed fractions."""

from typing import Any, ClassVar

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from rl_training.algorithms.core.ops import select_action
from rl_training.algorithms.dqn import DQNAlgorithm, DQNConfig, RowLosses
from rl_training.models import QRDQNModel
from rl_training.types import Batch


class QuantileConfig(DQNConfig):
    kappa: PositiveFloat = Field(1.0, description="Huber threshold of the quantile loss")


class QRDQNConfig(QuantileConfig):
    num_quantiles: PositiveInt = Field(200, description="quantiles of each action's return")


def quantile_huber_loss(errors: Tensor, fractions: Tensor, kappa: float) -> Tensor:
    """Quantile Huber loss: sum over quantiles of the mean over targets of |tau - 1(e < 0)| * huber(e) / kappa."""
    # `errors` e = target - quantile are [rows, quantiles, targets]; tau are the `fractions`. With c = e within +-kappa,
    # huber(e) = c * (e - c / 2) has the slope c. So one product gives the loss and its gradient.
    with torch.no_grad():
        clipped, tau = errors.clamp(-kappa, kappa), fractions.unsqueeze(-1)
        slopes = torch.where(errors < 0, 1 - tau, tau).mul_(clipped)
    return (slopes * errors.sub(clipped, alpha=0.5)).mean(-1).sum(-1) / kappa


class QRDQNAlgorithm(DQNAlgorithm):
    name = "qr_dqn"
    config_type: ClassVar[type[QuantileConfig]] = QRDQNConfig
    model_type: ClassVar[Any] = QRDQNModel

    @torch.no_grad()
    def loss_target(self, batch: Batch) -> Tensor:
        """TD targets r + gamma * (1 - done) * quantiles at (s', a'); [rows, quantiles]."""
        prediction, actions = self.predict_next(batch["next_obs"])
        return self.td_target(batch, select_action(prediction.quantile_hats, actions).mT).mT

    def row_losses(self, prediction: Any, target: Tensor, actions: Tensor) -> RowLosses:
        """Quantile Huber loss between the predicted quantiles at (s, a) and the targets."""
        quantiles = select_action(prediction.quantile_hats, actions)
        errors = target.unsqueeze(-2) - quantiles.unsqueeze(-1)
        losses = quantile_huber_loss(errors, prediction.tau_hats, self.config.kappa)
        values = select_action(prediction.expected(), actions)
        return RowLosses({"loss": losses}, errors.detach().abs().mean((-2, -1)), values, target.mean(-1))
