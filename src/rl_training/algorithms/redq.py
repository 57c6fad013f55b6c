"""Randomized ensembled double Q-learning (Chen et al., 2021, arXiv:2101.05982): SAC with an ensemble of critics."""

from __future__ import annotations

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from rl_training.algorithms.core.learner import frozen, frozen_subset
from rl_training.algorithms.sac import SACAlgorithm, SACConfig
from rl_training.models import MLPREDQModel


class REDQConfig(SACConfig):
    learning_starts: int = Field(5_000, ge=0, description="steps with random actions before the first update")
    updates_per_collect: PositiveInt = Field(20, description="updates per collection")
    num_critics: PositiveInt = Field(10, description="number of critics")
    subset_size: PositiveInt = Field(2, description="critics in the random subset whose minimum is the target")
    policy_delay: PositiveInt = Field(20, description="critic updates per update of the actor and the temperature")

    @model_validator(mode="after")
    def _check_subset_size(self) -> REDQConfig:
        if self.subset_size > self.num_critics:
            raise ValueError(f"subset_size must be at most num_critics = {self.num_critics}, got {self.subset_size}")
        return self


def random_subset(size: int, count: int, device: torch.device) -> Tensor:
    """`size` different indices below `count`; all subsets are equally likely."""
    return torch.rand(count, device=device).topk(size).indices


class REDQAlgorithm(SACAlgorithm):
    """SAC whose TD target is the minimum over a random subset of critics, and whose actor maximises their mean."""

    name = "redq"
    config_type = REDQConfig
    model_type = MLPREDQModel

    def phases(self, update: int) -> tuple[str, ...]:
        delayed = (update + 1) % self.config.policy_delay == 0
        return ("loss" if delayed else "critics", "targets")

    def next_value(self, next_obs: Tensor, actions: Tensor) -> Tensor:
        subset = random_subset(self.config.subset_size, self.config.num_critics, next_obs.device)
        return frozen_subset(self.target["critic"], subset)(next_obs, actions).amin(0)

    def policy_value(self, obs: Tensor, actions: Tensor) -> Tensor:
        return frozen(self.model.critic)(obs, actions).mean(0)
