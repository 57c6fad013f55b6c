"""ReBRAC (Tarasov et al., 2023, arXiv:2305.09836): TD3+BC with a penalty for the actor and another for the critics."""

from typing import Any, ClassVar

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor

from rl_training.algorithms.core.config import ActionNoiseConfig, ActorRateConfig, OfflineTDConfig, PrecisionConfig
from rl_training.algorithms.core.learner import Column
from rl_training.algorithms.core.precision import in_precision
from rl_training.algorithms.sac import frozen_min_q
from rl_training.algorithms.td3 import DelayedActorConfig, TD3Algorithm
from rl_training.models import MLPReBRACModel
from rl_training.types import Batch, Loss


class ReBRACConfig(DelayedActorConfig, ActionNoiseConfig, ActorRateConfig, PrecisionConfig, OfflineTDConfig):
    learning_rate: PositiveFloat = Field(1e-3, description="learning rate")
    batch_size: PositiveInt = Field(1024, description="transitions per update")
    hidden_sizes: tuple[PositiveInt, ...] = Field((256, 256, 256), description="widths of the hidden layers")
    actor_bc_coef: NonNegativeFloat = Field(
        0.01, description="weight of (pi(s) - a)^2 in the policy loss; tune it per dataset, 0.001 to 0.1"
    )
    critic_bc_coef: NonNegativeFloat = Field(
        0.01, description="weight of (a' - next action of the data)^2 in the TD target; tune it per dataset, 0 to 0.5"
    )


def squared_distance(actions: Tensor, others: Tensor) -> Tensor:
    """|a - b|^2, summed over the action dimensions; [rows]."""
    return (actions - others).square().sum(-1)


def rebrac_policy_loss(q: Tensor, policy_actions: Tensor, actions: Tensor, bc_coef: float) -> Loss:
    """Policy loss: mean of bc_coef * |pi(s) - a|^2 - lambda * min Q(s, pi(s)), with lambda = 1 / mean |min Q|."""
    q_weight = 1 / q.abs().mean().detach()
    bc_loss = bc_coef * squared_distance(policy_actions, actions).mean()
    return Loss({"actor_loss": -q_weight * q.mean(), "bc_loss": bc_loss}, {"q_weight": q_weight})


class ReBRACAlgorithm(TD3Algorithm):
    name = "rebrac"
    lane = "offline"
    config_type = ReBRACConfig
    model_type: ClassVar[Any] = MLPReBRACModel
    actor_parameters = ("model.actor.",)
    needs = (Column("next_actions", like="actions", online="episode end"),)

    @torch.no_grad()
    def target_q(self, batch: Batch) -> Tensor:
        """TD target: r + gamma * (1 - done) * (min target Q(s', a') - critic_bc_coef * |a' - b|^2).

        a' is the smoothed action of the target policy and b the next action of the data. A truncated transition has no
        next action, and so no penalty.
        """
        if "next_actions" not in batch:
            raise ValueError(
                "rebrac needs the column next_actions, and this batch has none. "
                "Add the actions that follow the transitions, or train with rl_training.ReBRAC, which derives them"
            )
        next_obs, actions = batch["next_obs"], self.target_actions(batch["next_obs"])
        penalty = (1 - batch["truncated"]) * squared_distance(actions, batch["next_actions"])
        next_q = self.target["critic"](next_obs, actions).amin(0) - self.config.critic_bc_coef * penalty
        return self.td_target(batch, next_q)

    @in_precision
    def actor_loss(self, batch: Batch) -> Loss:
        obs = self.normalizer(batch["obs"])
        policy_actions = self.model.actor(obs).mode()
        q = frozen_min_q(self.model.critic, obs, policy_actions)
        return rebrac_policy_loss(q, policy_actions, batch["actions"], self.config.actor_bc_coef)
