"""Quantile regression DQN (Dabney et al., 2018, arXiv:1710.10044): returns as quantiles at fixed fractions."""

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from rl_training.algorithms.core.ops import select_action
from rl_training.algorithms.dqn import DQNAlgorithm, DQNConfig, RowLosses
from rl_training.models import ProposedQuantiles, QRDQNModel, Quantiles
from rl_training.types import Batch


class QuantileConfig(DQNConfig):
    kappa: PositiveFloat = Field(1.0, description="Huber threshold of the quantile loss")


class QRDQNConfig(QuantileConfig):
    num_quantiles: PositiveInt = Field(200, description="quantiles of each action's return")


def quantile_huber_loss(errors: Tensor, fractions: Tensor, kappa: float) -> Tensor:
    """Quantile Huber loss: sum over quantiles of the mean over targets of |tau - 1(e < 0)| * huber(e) / kappa."""
    # `errors` e = target - quantile are [rows, quantiles, targets]; tau are the `fractions`.
    sizes = errors.abs()
    huber = torch.where(sizes <= kappa, 0.5 * errors.square(), kappa * (sizes - 0.5 * kappa))
    weights = (fractions.unsqueeze(-1) - (errors < 0).float()).abs()
    return (weights * huber / kappa).mean(-1).sum(-1)


@torch.no_grad()
def quantile_target(learner: DQNAlgorithm, batch: Batch) -> Tensor:
    """TD targets r + gamma * (1 - done) * quantiles at (s', a'); [rows, quantiles]."""
    prediction, actions = learner.predict_next(batch["next_obs"])
    return learner.td_target(batch, select_action(prediction.quantile_hats, actions).mT).mT


def quantile_losses(
    learner: DQNAlgorithm, prediction: Quantiles | ProposedQuantiles, target: Tensor, actions: Tensor
) -> RowLosses:
    """Quantile Huber loss between the predicted quantiles at (s, a) and the targets."""
    quantiles = select_action(prediction.quantile_hats, actions)
    errors = target.unsqueeze(-2) - quantiles.unsqueeze(-1)
    losses = quantile_huber_loss(errors, prediction.tau_hats, learner.config.kappa)
    values = select_action(prediction.expected(), actions)
    return RowLosses({"loss": losses}, errors.abs().mean((-2, -1)), values, target.mean(-1))


class QRDQNAlgorithm(DQNAlgorithm):
    name = "qr_dqn"
    config_type = QRDQNConfig
    model_type = QRDQNModel
    target_of, compare = quantile_target, quantile_losses
