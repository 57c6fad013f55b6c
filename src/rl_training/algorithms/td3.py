"""TD3 (Fujimoto et al., 2018, arXiv:1802.09477): twin critics, target policy smoothing and delayed policy updates."""

from typing import ClassVar

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor

from rl_training.algorithms.core.config import ActionNoiseConfig, AlgorithmConfig, NoiseKind, ReplayActorCriticConfig
from rl_training.algorithms.core.learner import Learner, frozen, frozen_subset
from rl_training.algorithms.core.ops import squared_td_loss
from rl_training.algorithms.core.precision import in_precision
from rl_training.models import MLPTD3Model
from rl_training.models.values import Critic
from rl_training.types import Batch, Loss


class DelayedActorConfig(AlgorithmConfig):
    policy_delay: PositiveInt = Field(2, description="critic updates per update of the actor and the target networks")
    target_noise: NonNegativeFloat = Field(0.2, description="std of the target policy smoothing noise")
    target_noise_clip: NonNegativeFloat = Field(0.5, description="bound of the target policy smoothing noise")


class TD3Config(DelayedActorConfig, ActionNoiseConfig, ReplayActorCriticConfig):
    learning_starts: int = Field(25_000, ge=0, description="steps with random actions before the first update")
    action_noise: NoiseKind = Field("gaussian", description="exploration noise added to the actions")


def smoothed_actions(actions: Tensor, *, noise: float, clip: float) -> Tensor:
    """Target policy smoothing: clip(a + clip(noise * N(0, 1), -c, c), -1, 1)."""
    return (actions + (noise * torch.randn_like(actions)).clamp(-clip, clip)).clamp(-1, 1)


class TD3Algorithm(Learner):
    name = "td3"
    lane = "replay"
    config_type: ClassVar[type[AlgorithmConfig]] = TD3Config
    model_type = MLPTD3Model
    action_kinds = ("box",)
    targets = ("actor", "critic")

    def phases(self, update: int) -> tuple[str, ...]:
        delayed = (update + 1) % self.config.policy_delay == 0
        return ("critic_loss", "actor_loss", "targets") if delayed else ("critic_loss",)

    @in_precision
    def critic_loss(self, batch: Batch) -> Loss:
        batch = self.normalized(batch)
        return squared_td_loss(self.model.critic(batch["obs"], batch["actions"]), self.target_q(batch))

    @torch.no_grad()
    def target_q(self, batch: Batch) -> Tensor:
        """TD target: r + gamma * (1 - done) * min target Q(s', smoothed target policy(s'))."""
        next_obs = batch["next_obs"]
        next_q = self.target["critic"](next_obs, self.target_actions(next_obs)).amin(0)
        return self.td_target(batch, next_q)

    def target_actions(self, next_obs: Tensor) -> Tensor:
        """Smoothed actions of the target policy."""
        noise, clip = self.config.target_noise, self.config.target_noise_clip
        return smoothed_actions(self.target["actor"](next_obs).mode(), noise=noise, clip=clip)

    @in_precision
    def actor_loss(self, batch: Batch) -> Loss:
        obs = self.normalizer(batch["obs"])
        policy_actions = self.model.actor(obs).mode()
        return self.policy_loss(self.first_q(obs, policy_actions), policy_actions, batch)

    def first_q(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Q-value of the first critic, as in the authors' code, with gradients for the actions only."""
        critic = self.model.critic
        values = frozen_subset(critic, slice(1)) if type(critic) is Critic else frozen(critic)
        return values(obs, actions)[0]

    def policy_loss(self, q: Tensor, policy_actions: Tensor, batch: Batch) -> Loss:
        """Policy loss: mean of -Q1(s, pi(s))."""
        return Loss({"actor_loss": -q.mean()})
