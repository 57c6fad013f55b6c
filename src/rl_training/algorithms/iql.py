"""Implicit Q-learning (Kostrikov, Nair & Levine, 2021, arXiv:2110.06169): offline RL by expectile regression."""

from typing import Annotated, NamedTuple

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from rl_training.algorithms.core.config import ActorRateConfig, OfflineTDConfig, PrecisionConfig
from rl_training.algorithms.core.learner import Learner
from rl_training.algorithms.core.ops import expectile_loss, squared_td_loss, weighted_cloning_loss
from rl_training.models import MLPIQLModel
from rl_training.types import Batch, Loss


class IQLConfig(ActorRateConfig, PrecisionConfig, OfflineTDConfig):
    expectile: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.7, description="expectile of the value loss; 0.5 is the mean, towards 1 the maximum over actions"
    )
    beta: PositiveFloat = Field(3.0, description="inverse temperature: weight = exp(beta * advantage)")
    max_advantage_weight: PositiveFloat = Field(100.0, description="upper bound of that weight")


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
    return squared_td_loss(q, target_q).joined(iql_policy_loss(advantage, log_prob, config))


def iql_policy_loss(advantage: Tensor, log_prob: Tensor, config: IQLConfig) -> Loss:
    """Value and policy losses, which both read the advantage."""
    policy = weighted_cloning_loss(config.beta * advantage, log_prob, config.max_advantage_weight)
    return Loss({"value_loss": expectile_loss(advantage, config.expectile)}).joined(policy)


class IQLAlgorithm(Learner):
    name = "iql"
    lane = "offline"
    config_type = IQLConfig
    model_type = MLPIQLModel
    action_kinds = ("box", "discrete")
    targets = ("critic",)
    parts = ("critics", "policy")
    actor_parameters = ("model.actor.",)

    def critics(self, batch: Batch) -> Loss:
        return squared_td_loss(*self.predict_q(batch))

    def policy(self, batch: Batch) -> Loss:
        return iql_policy_loss(*self.predict_policy(batch), self.config)

    def predict_batch(self, batch: Batch) -> IQLPredictions:
        return IQLPredictions(*self.predict_q(batch), *self.predict_policy(batch))

    def predict_q(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Q(s, a) [critics, rows] and its TD target [rows]."""
        with self.precision(batch):
            q = self.model.critic(self.normalizer(batch["obs"]), batch["actions"])
            with torch.no_grad():
                next_value = self.model.value(self.normalizer(batch["next_obs"]))
        return q, self.td_target(batch, next_value)

    def predict_policy(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Advantage min target Q(s, a) - V(s) and log pi(a|s), both [rows]."""
        obs, actions = self.normalizer(batch["obs"]), batch["actions"]
        with self.precision(batch):
            with torch.no_grad():
                min_q = self.target["critic"](obs, actions).amin(0)
            return min_q - self.model.value(obs), self.model.actor(obs).log_prob(actions)
