"""Randomized ensembled double Q-learning (Chen et al., 2021): SAC with ten critics, updated twenty times a step."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn
from torch.func import functional_call

from rl_training.algorithms.core.config import AlgorithmConfig
from rl_training.algorithms.core.learner import frozen
from rl_training.algorithms.sac import SACAlgorithm, SACConfig
from rl_training.models import MLPREDQModel
from rl_training.types import Batch, Loss


class REDQConfig(SACConfig):
    learning_starts: int = Field(5_000, ge=0, description="steps of random actions before the first update")
    updates_per_collect: PositiveInt = Field(20, description="updates after each collection")
    num_critics: PositiveInt = Field(10, description="critics, all fitted to the same targets")
    subset_size: PositiveInt = Field(2, description="critics, drawn anew at each update, whose minimum is the target")
    policy_delay: PositiveInt = Field(20, description="updates of the critics for one of actor and temperature")

    @model_validator(mode="after")
    def _subset_is_of_the_critics(self) -> REDQConfig:
        if self.subset_size > self.num_critics:
            raise ValueError(f"subset_size must be at most num_critics = {self.num_critics}, got {self.subset_size}")
        return self


def drawn(size: int, count: int, device: torch.device) -> Tensor:
    """`size` different numbers below `count`, every such set as likely as another."""
    return torch.rand(count, device=device).topk(size).indices


def values_of(critic: nn.Module, which: Tensor, obs: Tensor, actions: Tensor) -> Tensor:
    """Action values of these copies alone, [copies, rows]."""
    chosen = {name: parameter[which] for name, parameter in critic.named_parameters()}
    values: Tensor = functional_call(critic, chosen, (obs, actions))
    return values


class REDQAlgorithm(SACAlgorithm):
    name = "redq"
    config_type: ClassVar[type[AlgorithmConfig]] = REDQConfig
    model_type = MLPREDQModel

    def phases(self, update: int) -> tuple[str, ...]:
        delayed = (update + 1) % self.config.policy_delay == 0
        return ("loss" if delayed else "critics", "targets")

    def critics(self, batch: Batch) -> Loss:
        """The critics' part of `loss` alone."""
        return self.critic_loss(batch, self.log_alpha.detach().exp())

    def next_value(self, next_obs: Tensor, actions: Tensor) -> Tensor:
        which = drawn(self.config.subset_size, self.config.num_critics, next_obs.device)
        return values_of(self.target["critic"], which, next_obs, actions).amin(0)

    def policy_value(self, obs: Tensor, actions: Tensor) -> Tensor:
        """The mean of all critics, which errs less than any of them."""
        q: Tensor = frozen(self.model.critic)(obs, actions)
        return q.mean(0)
