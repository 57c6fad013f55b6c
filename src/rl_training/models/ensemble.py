"""Probabilistic dynamics ensemble of PETS, MBPO and MOPO."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from rl_training.models.mlp import EnsembleLinear, mlp
from rl_training.types import EnvSpec


class Prediction(NamedTuple):
    """Predictions of all members: next_obs - obs, then the reward, [members, rows, obs_dim + 1]."""

    mean: Tensor
    log_var: Tensor
    ends: Tensor  # [members, rows], termination logits

    def of(self, members: Tensor) -> Prediction:
        """Selects one member per row, [rows, ...]."""
        rows = torch.arange(len(members), device=members.device)
        return Prediction(*(each[members, rows] for each in self))


class MLPMOPOEnsembleModel(nn.Module):
    """Maps (obs, actions) to a `Prediction` in environment units; all members run as one batched product."""

    input_mean: Tensor  # inputs are standardised, and after `scale_targets` targets too
    input_std: Tensor
    target_mean: Tensor
    target_std: Tensor
    elites: Tensor  # members with the lowest error

    def __init__(
        self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int] = (200, 200, 200, 200), *, members: int = 7,
        elites: int = 5,
    ) -> None:  # fmt: skip
        super().__init__()
        if elites > members:
            raise ValueError(f"elites must be at most the number of members, {members}, got {elites}")
        self.members, self.outputs = members, obs_dim + 1
        sizes = (obs_dim + action_dim, *hidden_sizes, 2 * self.outputs + 1)
        self.net = mlp(sizes, activation=nn.SiLU, copies=members)
        for layer in self.layers():
            std = 1 / (2 * math.sqrt(layer.weight.shape[1]))
            nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
            nn.init.zeros_(layer.bias)
        self.max_log_var = nn.Parameter(torch.full((self.outputs,), 0.5))  # shared by all members
        self.min_log_var = nn.Parameter(torch.full((self.outputs,), -10.0))
        self.register_buffer("input_mean", torch.zeros(obs_dim + action_dim))
        self.register_buffer("input_std", torch.ones(obs_dim + action_dim))
        self.register_buffer("target_mean", torch.zeros(self.outputs))
        self.register_buffer("target_std", torch.ones(self.outputs))
        self.register_buffer("elites", torch.arange(elites))

    @classmethod
    def build(cls, spec: EnvSpec, config: Any) -> MLPMOPOEnsembleModel:
        return cls(
            math.prod(spec.obs_shape), spec.action_dim, config.model_hidden_sizes, members=config.model_members,
            elites=config.model_elites,
        )  # fmt: skip

    def forward(self, obs: Tensor, actions: Tensor) -> Prediction:
        """Inputs are [rows, ...] for all members, or [members, rows, ...]."""
        inputs = (torch.cat([obs, actions], -1) - self.input_mean) / self.input_std
        if inputs.dim() == 2:
            inputs = inputs.expand(self.members, *inputs.shape)
        mean, log_var, ends = self.net(inputs).split([self.outputs, self.outputs, 1], -1)
        log_var = self.max_log_var - softplus(self.max_log_var - log_var)
        log_var = self.min_log_var + softplus(log_var - self.min_log_var)
        mean, log_var = self.target_mean + self.target_std * mean, log_var + 2 * self.target_std.log()
        return Prediction(mean, log_var, ends.squeeze(-1))

    def layers(self) -> list[EnsembleLinear]:
        return [layer for layer in self.net if isinstance(layer, EnsembleLinear)]

    @torch.no_grad()
    def scale_inputs(self, obs: Tensor, actions: Tensor) -> None:
        _fit_statistics(torch.cat([obs, actions], -1), self.input_mean, self.input_std)

    @torch.no_grad()
    def scale_targets(self, targets: Tensor) -> None:
        _fit_statistics(targets, self.target_mean, self.target_std)


def _fit_statistics(rows: Tensor, mean: Tensor, std: Tensor) -> None:
    """Writes the mean and std of the rows; constant columns get a std of 1."""
    rows_std = rows.std(0, unbiased=False)
    mean.copy_(rows.mean(0))
    std.copy_(torch.where(rows_std < 1e-12, 1.0, rows_std))
