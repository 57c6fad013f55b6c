"""Generative adversarial imitation learning (Ho & Ermon, 2016, arXiv:1606.03476): PPO with a learned reward."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor
from torch.func import grad
from torch.nn.functional import logsigmoid, softplus

from rl_training.algorithms.core.config import AlgorithmConfig
from rl_training.algorithms.core.learner import Column, Learner
from rl_training.algorithms.ppo import PPOAlgorithm, PPOConfig
from rl_training.models import MLPGAILDiscriminator, Normalizer
from rl_training.types import Batch, Loss

RewardForm = Literal["softplus", "log_d", "logit"]


class DiscriminatorConfig(AlgorithmConfig):
    hidden_sizes: tuple[PositiveInt, ...] = Field((100, 100), description="widths of the hidden layers")
    batch_size: PositiveInt = Field(256, description="transitions per update from each of expert and policy")
    gradient_penalty: float = Field(0.0, ge=0, description="weight of the gradient penalty")
    spectral_norm: bool = Field(False, description="spectral normalisation of the weights")


class GAILConfig(PPOConfig):
    reward_form: RewardForm = Field(
        "softplus", description="reward of the logit l: softplus(l) >= 0, log_d = -softplus(-l) <= 0, or logit = l"
    )
    discriminator_updates: PositiveInt = Field(8, description="discriminator updates per rollout")
    discriminator_learning_rate: PositiveFloat = Field(3e-4, description="learning rate of the discriminator")
    discriminator_batch_size: PositiveInt = Field(
        256, description="transitions per discriminator update from each of expert and policy"
    )
    discriminator_hidden_sizes: tuple[PositiveInt, ...] = Field(
        (100, 100), description="widths of the discriminator's hidden layers"
    )
    gradient_penalty: float = Field(0.0, ge=0, description="weight of the discriminator's gradient penalty")
    spectral_norm: bool = Field(False, description="spectral normalisation of the discriminator")
    absorbing_states: bool = Field(
        False, description="add an absorbing state with a learned reward after each termination"
    )

    @model_validator(mode="after")
    def _check_gamma(self) -> GAILConfig:
        if self.absorbing_states and self.gamma == 1:
            raise ValueError("gamma must be below 1 with absorbing_states, got 1")
        return self

    def discriminator(self) -> DiscriminatorConfig:
        return DiscriminatorConfig(
            learning_rate=self.discriminator_learning_rate, batch_size=self.discriminator_batch_size,
            hidden_sizes=self.discriminator_hidden_sizes, gradient_penalty=self.gradient_penalty,
            spectral_norm=self.spectral_norm,
        )  # fmt: skip


def gail_reward(logits: Tensor, form: RewardForm = "softplus") -> Tensor:
    """Reward of a step, with D = sigmoid(logit) the probability of being the expert's.

    - softplus: -log(1 - D) >= 0, which favours long episodes
    - log_d: log D <= 0, which favours short episodes
    - logit: log D - log(1 - D), of either sign
    """
    forms = {"softplus": softplus, "log_d": logsigmoid, "logit": lambda logits: logits}
    return forms[form](logits)


def discriminator_loss(expert_logits: Tensor, policy_logits: Tensor, expert_weights: Tensor | None = None) -> Loss:
    """Binary cross-entropy: -mean log D(expert) - mean log(1 - D(policy)), with D = sigmoid(logit)."""
    expert = softplus(-expert_logits)
    mean = expert.mean() if expert_weights is None else (expert_weights * expert).sum() / expert_weights.sum()
    right = {"gail_expert_accuracy": expert_logits > 0, "gail_policy_accuracy": policy_logits < 0}
    accuracies = {name: rows.float().mean() for name, rows in right.items()}
    return Loss({"gail_discriminator_loss": mean + softplus(policy_logits).mean()}, accuracies)


class GAILDiscriminator(Learner):
    """Classifies (expert_obs, expert_actions) against (obs, actions); `expert_weights` weight the expert's rows."""

    name = "gail_discriminator"
    lane = "rollout"
    config_type = DiscriminatorConfig
    model_type = MLPGAILDiscriminator
    action_kinds = ("box", "discrete", "multi_discrete")
    needs = (Column("expert_obs", like="obs"), Column("expert_actions", like="actions"))
    normalizer: Normalizer

    def new_normalizer(self) -> Normalizer:
        return Normalizer(self.model.obs_shape, clip=10.0)

    def prepare(self, batch: Batch) -> Batch:
        """Adds the expert's and the policy's observations to the statistics."""
        self.normalizer.merge(torch.cat([batch["obs"], batch["expert_obs"]]))
        return batch

    def loss(self, batch: Batch) -> Loss:
        policy = self.model.inputs(self.normalizer(batch["obs"]), batch["actions"])
        expert = self.model.inputs(self.normalizer(batch["expert_obs"]), batch["expert_actions"])
        loss = discriminator_loss(self.model.logits(expert), self.model.logits(policy), batch.get("expert_weights"))
        if not self.config.gradient_penalty:
            return loss
        penalty = self.config.gradient_penalty * self.gradient_penalty(expert, policy)
        return loss.plus({"gail_gradient_penalty": penalty})

    def gradient_penalty(self, expert: Tensor, policy: Tensor) -> Tensor:
        """Mean of (|gradient of the logit| - 1)^2 at random interpolations (WGAN-GP, arXiv:1704.00028)."""
        weight = torch.rand_like(expert[:, :1])
        gradients = grad(lambda inputs: self.model.logits(inputs).sum())(weight * expert + (1 - weight) * policy)
        return (torch.linalg.vector_norm(gradients, dim=1) - 1).square().mean()

    @torch.no_grad()
    def logits(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.model(self.normalizer(obs), actions)


class GAILAlgorithm(PPOAlgorithm):
    """PPO; its lane fits a `GAILDiscriminator` and computes the rewards."""

    name = "gail"
    config_type = GAILConfig
    takes_pixels = False
    needs_expert = True
    reads_rewards = False
    lane_class = "imitation"
