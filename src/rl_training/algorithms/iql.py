"""Implicit Q-learning (Kostrikov, Nair & Levine, 2021, arXiv:2110.06169): offline RL by expectile regression."""

from typing import Annotated, NamedTuple

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from rl_training.algorithms.core.config import OfflineConfig, Rate
from rl_training.algorithms.core.learner import Learner, actor_critic_groups
from rl_training.algorithms.core.ops import ensemble_squared_error, expectile_loss, td_target
from rl_training.models import MLPIQLModel
from rl_training.types import Batch, Loss, ParameterGroup


class IQLConfig(OfflineConfig):
    expectile: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.7, description="expectile of the value loss; 0.5 is the mean, towards 1 the maximum over actions"
    )
    beta: PositiveFloat = Field(3.0, description="inverse temperature: weight = exp(beta * advantage)")
    max_advantage_weight: PositiveFloat = Field(100.0, description="upper bound of that weight")
    tau: Rate = Field(0.005, description="Polyak coefficient of the target critics")
    actor_learning_rate: PositiveFloat | None = Field(
        None, description="learning rate of the actor; none: learning_rate"
    )


class IQLPredictions(NamedTuple):
    q: Tensor  # [critics, rows], Q(s, a)
    target_q: Tensor  # [rows], TD target
    advantage: Tensor  # [rows], min target Q(s, a) - V(s); only V receives gradients
    log_prob: Tensor  # [rows], log pi(a|s)


def iql_loss(predictions: IQLPredictions, config: IQLConfig) -> Loss:
    """Sum of the critic, value and policy losses of IQL, with A = min target Q(s, a) - V(s).

    - critic: mean of (Q(s, a) - r - gamma * (1 - done) * V(s'))^2, summed over the critics
    - value: mean of |expectile - 1(A < 0)| * A^2
    - policy: mean of -min(exp(beta * A), max_advantage_weight) * log pi(a|s)
    """
    q, target_q, advantage, log_prob = predictions
    weight = (config.beta * advantage.detach()).exp().clamp(max=config.max_advantage_weight)
    return Loss(
        terms={
            "critic_loss": ensemble_squared_error(q, target_q),
            "value_loss": expectile_loss(advantage, config.expectile),
            "actor_loss": -(weight * log_prob).mean(),
        },
        metrics={"target_q_mean": target_q.mean(), "advantage_weight_mean": weight.mean()},
    )


class IQLAlgorithm(Learner):
    name = "iql"
    lane = "offline"
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
            target_q=td_target(batch["rewards"], batch["dones"], next_value, self.config.gamma),
            advantage=min_q - model.value(obs),
            log_prob=model.actor(obs).log_prob(actions),
        )

    def parameter_groups(self) -> list[ParameterGroup]:
        return actor_critic_groups(self.config)
