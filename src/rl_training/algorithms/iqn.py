"""Implicit quantile networks (Dabney et al., 2018, arXiv:1806.06923): quantiles at randomly sampled fractions."""

from typing import Any

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from rl_training.algorithms.dqn import network_noise, q_values
from rl_training.algorithms.qr_dqn import QRDQNAlgorithm, QuantileConfig
from rl_training.models import IQNModel, Quantiles, midpoints


class IQNConfig(QuantileConfig):
    num_quantiles: PositiveInt = Field(64, description="fractions sampled for the prediction and for the target")
    num_acting_quantiles: PositiveInt = Field(32, description="fractions sampled to select an action")
    num_cosines: PositiveInt = Field(64, description="cosine features of a fraction")


def random_fractions(obs: Tensor, count: int, generator: torch.Generator | None = None) -> Tensor:
    """Uniform fractions in [0, 1); [rows, count]."""
    return torch.rand(len(obs), count, generator=generator, device=obs.device)


def quantiles_at(network: Any, obs: Tensor, taus: Tensor, generator: torch.Generator | None = None) -> Quantiles:
    """Quantiles of a network at these fractions; noisy networks get new noise."""
    return network(obs, taus, network_noise(network, obs, generator))


class IQNAlgorithm(QRDQNAlgorithm):
    """The loss is the quantile Huber loss of QR-DQN at sampled fractions."""

    name = "iqn"
    config_type = IQNConfig
    model_type = IQNModel

    def evaluate(
        self, network: Any, obs: Tensor, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Quantiles:
        """Quantiles for action selection: at random fractions, or at midpoints if `deterministic`."""
        count = self.config.num_acting_quantiles
        if deterministic:
            return network(obs, midpoints(count, obs.device))
        return quantiles_at(network, obs, random_fractions(obs, count, generator), generator)

    def predict(self, obs: Tensor) -> Quantiles:
        return quantiles_at(self.model.q, obs, random_fractions(obs, self.config.num_quantiles))

    @torch.no_grad()
    def predict_next(self, next_obs: Tensor) -> tuple[Quantiles, Tensor]:
        """Action selection and evaluation use independent fractions."""
        chooser = self.evaluate(self.model.q if self.config.double else self.target["q"], next_obs)
        taus = random_fractions(next_obs, self.config.num_quantiles)
        return quantiles_at(self.target["q"], next_obs, taus), q_values(chooser).argmax(-1)
