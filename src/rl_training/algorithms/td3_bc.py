"""TD3+BC (Fujimoto & Gu, 2021): TD3 on a dataset, its actor held to the data's actions by squared error."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, PositiveFloat
from torch import Tensor

from rl_training.algorithms.core.config import AlgorithmConfig, OfflineConfig, Rate
from rl_training.algorithms.core.learner import OfflineLearner
from rl_training.algorithms.td3 import DelayedActorConfig, TD3Algorithm
from rl_training.types import Batch, Loss


class TD3BCConfig(DelayedActorConfig, OfflineConfig):
    alpha: PositiveFloat = Field(2.5, description="weight of the critic beside cloning: alpha / mean |Q|")
    tau: Rate = Field(0.005, description="share of the way the targets go at each of their moves")
    normalize_obs: bool = Field(True, description="standardise observations by the dataset's mean and deviation")


def td3_bc_loss(q: Tensor, chosen: Tensor, actions: Tensor, alpha: float) -> Loss:
    """The actor's: its actions' values, scaled by their own mean size, and its distance from the data."""
    q_weight = alpha / q.abs().mean().detach()
    terms = {"actor_loss": -q_weight * q.mean(), "bc_loss": (chosen - actions).square().mean()}
    return Loss(terms, {"q_weight": q_weight})


class TD3BCAlgorithm(OfflineLearner, TD3Algorithm):
    name = "td3_bc"
    config_type: ClassVar[type[AlgorithmConfig]] = TD3BCConfig

    def critic_loss(self, batch: Batch) -> Loss:
        return super().critic_loss(self.standardized(batch))

    def actor_loss(self, batch: Batch) -> Loss:
        return super().actor_loss(self.standardized(batch))

    def policy_loss(self, q: Tensor, chosen: Tensor, batch: Batch) -> Loss:
        return td3_bc_loss(q, chosen, batch["actions"], self.config.alpha)
