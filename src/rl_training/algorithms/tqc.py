"""Truncated quantile critics (Kuznetsov et al., 2020, arXiv:2005.04269): SAC with return distributions as critics."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from rl_training.algorithms.core.learner import frozen
from rl_training.algorithms.qr_dqn import quantile_huber_loss
from rl_training.algorithms.sac import SACAlgorithm, SACConfig
from rl_training.models import Layers, MLPSACModel, midpoints
from rl_training.models.products import with_full_outputs
from rl_training.models.values import Critic
from rl_training.types import Batch, EnvSpec, Loss

if TYPE_CHECKING:
    from typing_extensions import Self


class TQCConfig(SACConfig):
    critic_hidden_sizes: tuple[PositiveInt, ...] = Field(
        (512, 512, 512), description="widths of the hidden layers of the critics"
    )
    num_critics: PositiveInt = Field(5, description="number of critics")
    num_quantiles: PositiveInt = Field(25, description="quantiles of each critic")
    top_quantiles_to_drop_per_net: int = Field(
        2, ge=0, description="largest quantiles left out of the TD target, times num_critics"
    )

    @model_validator(mode="after")
    def _check_dropped(self) -> TQCConfig:
        dropped, count = self.top_quantiles_to_drop_per_net, self.num_quantiles
        if dropped >= count:
            raise ValueError(f"top_quantiles_to_drop_per_net must be below num_quantiles = {count}, got {dropped}")
        return self


class QuantileCritic(Critic):
    """Quantiles of the return of (s, a) by independent networks, [copies, rows, quantiles]."""

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        x = torch.cat([self.features(obs), actions], -1)
        return with_full_outputs(self.net, x.expand(self.copies, *x.shape))


class MLPTQCModel(MLPSACModel):
    """SAC's policy, and `num_critics` quantile critics with widths `critic_hidden_sizes`."""

    @classmethod
    def build(cls, spec: EnvSpec, config: Any) -> Self:
        obs_dim, layers = math.prod(spec.obs_shape), Layers.from_config(spec, config)
        model = cls(obs_dim, spec.action_dim, layers)
        wide = replace(layers, hidden_sizes=config.critic_hidden_sizes)
        copies, quantiles = config.num_critics, config.num_quantiles
        model.critic = QuantileCritic(obs_dim, spec.action_dim, wide, copies=copies, outputs=quantiles)
        return model


def smallest_quantiles(quantiles: Tensor, dropped: int) -> Tensor:
    """Pools the quantiles [critics, rows, quantiles] of all critics and drops the largest; [rows, kept], ascending."""
    pooled = quantiles.transpose(0, 1).flatten(1)
    return pooled.topk(pooled.shape[-1] - dropped, largest=False).values  # a sort compiles to one huge GPU kernel


class TQCAlgorithm(SACAlgorithm):
    """SAC whose critics learn the pooled smallest quantiles, and whose actor maximises the mean of all quantiles."""

    name = "tqc"
    config_type = TQCConfig
    model_type = MLPTQCModel

    def critic_loss(self, batch: Batch, alpha: Tensor) -> Loss:
        """Critic loss: mean of the quantile Huber loss over critics, rows, quantiles and targets."""
        quantiles, target_q = self.model.critic(batch["obs"], batch["actions"]), self.target_q(batch, alpha)
        errors = target_q.mT.unsqueeze(-2) - quantiles.unsqueeze(-1)
        count = self.config.num_quantiles
        loss = quantile_huber_loss(errors, midpoints(count, errors.device), kappa=1.0).mean() / count
        return Loss({"critic_loss": loss}, {"target_q_mean": target_q.mean()})

    def next_value(self, next_obs: Tensor, actions: Tensor) -> Tensor:
        """Kept quantiles of the next actions, [kept, rows]."""
        dropped = self.config.top_quantiles_to_drop_per_net * self.config.num_critics
        return smallest_quantiles(self.target["critic"](next_obs, actions), dropped).mT

    def policy_value(self, obs: Tensor, actions: Tensor) -> Tensor:
        return frozen(self.model.critic)(obs, actions).mean((0, -1))
