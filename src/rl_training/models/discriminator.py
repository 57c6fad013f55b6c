"""Discriminator network of GAIL."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch.nn.utils.parametrize import register_parametrization

from rl_training.models.mlp import mlp
from rl_training.types import EnvSpec


class MLPGAILDiscriminator(nn.Module):
    """Logit of "this step is the expert's" for each (observation, action)."""

    def __init__(
        self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int] = (100, 100), *, discrete: bool = False,
        spectral_norm: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.obs_shape, self.action_dim, self.discrete = (obs_dim,), action_dim, discrete
        self.net = mlp((obs_dim + action_dim, *hidden_sizes, 1), activation=nn.Tanh)
        if spectral_norm:
            for layer in self.net:
                if isinstance(layer, nn.Linear):
                    register_parametrization(layer, "weight", UnitSpectralNorm())

    @classmethod
    def build(cls, spec: EnvSpec, config: Any) -> MLPGAILDiscriminator:
        return cls(
            math.prod(spec.obs_shape), spec.action_dim, config.hidden_sizes,
            discrete=spec.action_kind == "discrete", spectral_norm=config.spectral_norm,
        )  # fmt: skip

    def inputs(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Concatenates observations and actions; Discrete actions become one-hot vectors."""
        encoded = one_hot(actions, self.action_dim).to(obs) if self.discrete else actions
        return torch.cat([obs, encoded], -1)

    def logits(self, inputs: Tensor) -> Tensor:
        return self.net(inputs).squeeze(-1)

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.logits(self.inputs(obs, actions))


class UnitSpectralNorm(nn.Module):
    """Divides a weight by its largest singular value, computed exactly because the matrices are small."""

    def forward(self, weight: Tensor) -> Tensor:
        return weight / torch.linalg.matrix_norm(weight, 2)
