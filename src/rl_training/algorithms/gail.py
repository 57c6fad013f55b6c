"""Generative adversarial imitation learning (Ho & Ermon, 2016): PPO that is paid for being taken for the expert."""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn
from torch.func import grad
from torch.nn.functional import logsigmoid, softplus

from rl_training.algorithms.core.columns import Column
from rl_training.algorithms.core.config import AlgorithmConfig
from rl_training.algorithms.core.learner import Learner
from rl_training.algorithms.ppo import PPOAlgorithm, PPOConfig
from rl_training.models import MLPGAILDiscriminator, Normalizer
from rl_training.types import Batch, Loss

RewardForm = Literal["softplus", "log_d", "logit"]


class DiscriminatorConfig(AlgorithmConfig):
    hidden_sizes: tuple[PositiveInt, ...] = Field((100, 100), description="widths of the hidden layers")
    batch_size: PositiveInt = Field(256, description="rows of either source in one update")
    gradient_penalty: float = Field(0.0, ge=0, description="weight of the pull of its slopes towards 1")
    spectral_norm: bool = Field(False, description="divide every weight by its largest singular value")


class GAILConfig(PPOConfig):
    reward_form: RewardForm = Field(
        "softplus", description="of the logit l: softplus(l) >= 0, log_d = -softplus(-l) <= 0, or l itself"
    )
    discriminator_updates: PositiveInt = Field(8, description="updates of the discriminator after each rollout")
    discriminator_learning_rate: PositiveFloat = Field(3e-4, description="step size of the discriminator's optimizer")
    discriminator_batch_size: PositiveInt = Field(256, description="rows of either source in an update of it")
    discriminator_hidden_sizes: tuple[PositiveInt, ...] = Field(
        (100, 100), description="widths of the discriminator's hidden layers"
    )
    gradient_penalty: float = Field(0.0, ge=0, description="weight of the pull of the discriminator's slopes towards 1")
    spectral_norm: bool = Field(False, description="divide the discriminator's weights by their largest singular value")
    absorbing_states: bool = Field(
        False,
        description="an end leads to a state of its own, which the discriminator judges and pays for ever",
    )

    @model_validator(mode="after")
    def _pays_a_finite_sum(self) -> GAILConfig:
        if self.absorbing_states and self.gamma == 1:
            raise ValueError("absorbing_states pay for ever, so gamma must be below 1, got 1")
        return self

    def discriminator(self) -> DiscriminatorConfig:
        return DiscriminatorConfig(
            learning_rate=self.discriminator_learning_rate,
            batch_size=self.discriminator_batch_size,
            hidden_sizes=self.discriminator_hidden_sizes,
            gradient_penalty=self.gradient_penalty,
            spectral_norm=self.spectral_norm,
        )


def gail_reward(logits: Tensor, form: RewardForm = "softplus") -> Tensor:
    """What a step is paid, more the more it looks like the expert's; D = sigmoid(logit), 1 for the expert.

    `softplus` is -log(1 - D), never negative: it pays for every step, so long episodes pay. `log_d` is log D, never
    positive: short episodes cost less. `logit`, log D - log(1 - D), may be either.
    """
    forms = {"softplus": softplus, "log_d": logsigmoid, "logit": lambda same: same}
    return forms[form](logits)


def discriminator_loss(expert_logits: Tensor, policy_logits: Tensor, expert_weights: Tensor | None = None) -> Loss:
    """Binary cross-entropy, the expert labelled 1 and the policy 0; each source's mean, so that they count alike."""
    expert = softplus(-expert_logits)
    mean = expert.mean() if expert_weights is None else (expert_weights * expert).sum() / expert_weights.sum()
    return Loss(
        terms={"gail_discriminator_loss": mean + softplus(policy_logits).mean()},
        metrics={
            "gail_expert_accuracy": (expert_logits > 0).float().mean(),
            "gail_policy_accuracy": (policy_logits < 0).float().mean(),
        },
    )


class GAILDiscriminator(Learner):
    """Learns to tell the expert's rows (expert_obs, expert_actions) from the policy's (obs, actions).

    Where there are expert_weights, they say how much each of the expert's rows counts.
    """

    name = "gail_discriminator"
    lane = "rollout"
    config_type = DiscriminatorConfig
    model_type = MLPGAILDiscriminator
    action_kinds = ("box", "discrete")
    needs = (Column("expert_obs", like="obs"), Column("expert_actions", like="actions"))

    def __init__(self, model: nn.Module, config: AlgorithmConfig | None = None, **options: Any) -> None:
        super().__init__(model, config, **options)
        self.normalizer = Normalizer(self.model.obs_shape, clip=10.0)

    def prepare(self, batch: Batch) -> Batch:
        """Take both sources into the statistics by which both are then seen."""
        self.normalizer.merge(torch.cat([batch["obs"], batch["expert_obs"]]))
        return batch

    def loss(self, batch: Batch) -> Loss:
        policy = self.model.inputs(self.normalizer(batch["obs"]), batch["actions"])
        expert = self.model.inputs(self.normalizer(batch["expert_obs"]), batch["expert_actions"])
        loss = discriminator_loss(self.model.logits(expert), self.model.logits(policy), batch.get("expert_weights"))
        if not self.config.gradient_penalty:
            return loss
        return loss.plus({"gail_gradient_penalty": self.config.gradient_penalty * self.slope_penalty(expert, policy)})

    def slope_penalty(self, expert: Tensor, policy: Tensor) -> Tensor:
        """How far the slope is from 1 at random points between the sources (Gulrajani et al., 2017)."""
        share = torch.rand_like(expert[:, :1])
        slopes = grad(lambda inputs: self.model.logits(inputs).sum())(share * expert + (1 - share) * policy)
        return (torch.linalg.vector_norm(slopes, dim=1) - 1).square().mean()

    @torch.no_grad()
    def logits(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.model(self.normalizer(obs), actions)


class GAILAlgorithm(PPOAlgorithm):
    """PPO as it is: what pays it, a `GAILDiscriminator`, is fitted by its lane."""

    name = "gail"
    config_type = GAILConfig
    action_kinds = ("box", "discrete")
    takes_pixels = False
    needs_expert = True
    lane_class = "imitation"
