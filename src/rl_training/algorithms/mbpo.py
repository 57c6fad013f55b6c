"""Model-based policy optimization (Janner et al., 2019): SAC on short rollouts in a model of the environment."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveInt
from torch import Tensor

from rl_training.algorithms.core.config import AlgorithmConfig
from rl_training.algorithms.core.updater import Updater
from rl_training.algorithms.dynamics import Dynamics, ModelBasedConfig
from rl_training.algorithms.sac import SACAlgorithm, SACConfig
from rl_training.models.ensemble import Prediction
from rl_training.types import Batch, EnvSpec, UpdateResult


class MBPOConfig(ModelBasedConfig, SACConfig):
    learning_starts: int = Field(5_000, ge=1, description="steps of random actions before the first fit and update")
    updates_per_collect: PositiveInt = Field(20, description="updates after each collection")
    model_train_interval: PositiveInt = Field(250, description="steps between fits of the model")
    n_step: Literal[1] = Field(1, description="always 1: rows of the model are single steps")


class MBPOAlgorithm(SACAlgorithm):
    name = "mbpo"
    config_type: ClassVar[type[AlgorithmConfig]] = MBPOConfig
    lane_class = "model_based"

    def imagined_rewards(self, rewards: Tensor, prediction: Prediction) -> Tensor:
        """What steps in the model pay, [rows], of which all members foresaw `prediction`."""
        return rewards

    @cached_property
    def model_updater(self) -> Updater:
        """Of a model for those who bring their own loop; runs keep theirs in the lane. No part of this module."""
        spec = EnvSpec(self.model.obs_shape, "box", self.model.action_dim)
        return Updater([Dynamics.build(spec, self.config).to(next(self.parameters()).device)])

    def update_model(self, batch: Batch) -> UpdateResult:
        """One update of the model on these rows; the first ones set the scale of its inputs."""
        if not self.model_updater.updates:
            dynamics: Any = self.model_updater.learner
            dynamics.prepare(batch)
        return self.model_updater.update(batch)
