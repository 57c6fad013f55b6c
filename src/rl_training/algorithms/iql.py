"""Implicit Q-learning (Kostrikov, Nair & Levine, 2021): offline, and never asks the critic about unseen actions."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from rl_training.algorithms.core.config import OfflineConfig, Rate
from rl_training.algorithms.core.learner import OfflineLearner, actor_apart
from rl_training.algorithms.core.ops import bootstrapped, ensemble_squared_error, expectile_loss
from rl_training.models import MLPIQLModel
from rl_training.types import Batch, Loss, ParameterGroup


class IQLConfig(OfflineConfig):
    expectile: Annotated[float, Field(gt=0, lt=1)] = Field(0.7, description="towards 1 the value nears the best action")
    beta: PositiveFloat = Field(3.0, description="inverse temperature: weight = exp(beta * advantage)")
    max_advantage_weight: PositiveFloat = Field(100.0, description="largest weight of one row in the actor's loss")
    tau: Rate = Field(0.005, description="share of the way the target critic moves at each update")
    actor_learning_rate: PositiveFloat | None = Field(None, description="step size of the actor; none: learning_rate")


class IQLPredictions(NamedTuple):
    q: Tensor  # [critics, rows], of the data's actions
    target_q: Tensor  # [rows]
    advantage: Tensor  # [rows], min target Q minus V; its gradient reaches V alone
    log_prob: Tensor  # [rows], of the data's actions


def iql_loss(seen: IQLPredictions, config: IQLConfig) -> Loss:
    weight = (config.beta * seen.advantage.detach()).exp().clamp(max=config.max_advantage_weight)
    return Loss(
        terms={
            "critic_loss": ensemble_squared_error(seen.q, seen.target_q),
            "value_loss": expectile_loss(seen.advantage, config.expectile),
            "actor_loss": -(weight * seen.log_prob).mean(),
        },
        metrics={"target_q_mean": seen.target_q.mean(), "advantage_weight_mean": weight.mean()},
    )


class IQLAlgorithm(OfflineLearner):
    name = "iql"
    config_type = IQLConfig
    model_type = MLPIQLModel
    action_kinds = ("box",)
    targets = ("critic",)

    def loss(self, batch: Batch) -> Loss:
        return iql_loss(self.predict_batch(batch), self.config)

    def predict_batch(self, batch: Batch) -> IQLPredictions:
        model, actions = self.model, batch["actions"]
        obs = self.normalizer(batch["obs"])
        with torch.no_grad():
            next_value = model.value(self.normalizer(batch["next_obs"]))
            min_q = self.target["critic"](obs, actions).amin(0)
        return IQLPredictions(
            q=model.critic(obs, actions),
            target_q=bootstrapped(batch["rewards"], batch["dones"], next_value, self.config.gamma),
            advantage=min_q - model.value(obs),
            log_prob=model.actor(obs).log_prob(actions),
        )

    def parameter_groups(self) -> list[ParameterGroup]:
        return actor_apart(self.config)
