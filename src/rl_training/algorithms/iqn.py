"""Implicit quantile networks (Dabney et al., 2018): quantiles at any fraction, fitted at random ones."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from rl_training.algorithms.core.config import AlgorithmConfig
from rl_training.algorithms.qr_dqn import QRDQNAlgorithm, QuantileConfig
from rl_training.models import IQNModel, Quantiles, midpoints


class IQNConfig(QuantileConfig):
    num_quantiles: PositiveInt = Field(64, description="fractions drawn in an update, and again for its targets")
    num_acting_quantiles: PositiveInt = Field(32, description="fractions by which an action is chosen")
    num_cosines: PositiveInt = Field(64, description="cosines that a fraction is told to the network by")


def random_fractions(obs: Tensor, count: int, generator: torch.Generator | None = None) -> Tensor:
    """So many for each row."""
    return torch.rand(len(obs), count, generator=generator, device=obs.device)


class IQNAlgorithm(QRDQNAlgorithm):
    name = "iqn"
    config_type: ClassVar[type[AlgorithmConfig]] = IQNConfig
    model_type = IQNModel

    def look(
        self, network: Any, obs: Tensor, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Quantiles:
        """As an action is chosen: at a few random fractions, or at even ones where nothing may be drawn."""
        count = self.config.num_acting_quantiles
        if deterministic:
            return network(obs, midpoints(count, obs.device))
        return self.look_at(network, obs, random_fractions(obs, count, generator), generator)

    def predict(self, obs: Tensor) -> Quantiles:
        return self.look_at(self.model.q, obs, random_fractions(obs, self.config.num_quantiles))

    @torch.no_grad()
    def look_ahead(self, next_obs: Tensor) -> tuple[Quantiles, Tensor]:
        """Other fractions value the actions than chose them."""
        chooser = self.look(self.model.q if self.config.double else self.target["q"], next_obs)
        taus = random_fractions(next_obs, self.config.num_quantiles)
        return self.look_at(self.target["q"], next_obs, taus), self.expected(chooser).argmax(-1)

    def look_at(self, network: Any, obs: Tensor, taus: Tensor, generator: torch.Generator | None = None) -> Quantiles:
        seen: Quantiles = network(obs, taus, self.noise(network, obs, generator))
        return seen
