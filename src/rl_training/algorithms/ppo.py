"""Proximal policy optimization (Schulman et al., 2017), for actions of all kinds, vectors and pixels."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from rl_training.algorithms.core.config import AlgorithmConfig, RolloutConfig
from rl_training.algorithms.core.learner import Learner
from rl_training.data import generalized_advantages
from rl_training.models import Normalizer, PPOModel
from rl_training.models.actor_critic import Activation
from rl_training.types import SKIP_UPDATES, Action, Batch, Loss, Metrics, ParameterGroup


class PPOConfig(RolloutConfig):
    batch_size: int = Field(64, ge=2, description="rows in one update; must divide num_steps * num_envs")
    hidden_sizes: tuple[PositiveInt, ...] = Field((64, 64), description="widths of the hidden layers")
    max_grad_norm: PositiveFloat | None = Field(0.5, description="clip the gradient to this norm; none: never")
    clip_range: PositiveFloat = Field(0.2, description="how far the new policy's probability ratio may count")
    value_weight: float = Field(0.5, ge=0, description="weight of the value loss")
    entropy_weight: float = Field(0.0, ge=0, description="weight of the entropy bonus")
    target_kl: PositiveFloat | None = Field(
        None, description="stop the updates on a rollout where the policy has moved 1.5 times this far; none: never"
    )
    activation: Activation = Field("tanh", description="what stands between the hidden layers")
    orthogonal_init: bool = Field(True, description="orthogonal weights in the beginning, small in the last layer")
    log_std_init: float = Field(0.0, description="the logarithm of a Box policy's deviation in the beginning")


def clipped_surrogate(ratio: Tensor, advantages: Tensor, clip_range: Tensor) -> Tensor:
    """The pessimistic bound of the policy's improvement, negated.

    What clipping leaves of a ratio counts only where it is the worse one: above 1 + clip_range for what was good, below
    1 - clip_range for what was bad. So the bound is a number of the advantages alone.
    """
    return -torch.minimum(ratio * advantages, advantages + clip_range * advantages.abs()).mean()


class PPOAlgorithm(Learner):
    name = "ppo"
    lane = "rollout"
    config_type = PPOConfig
    model_type = PPOModel
    action_kinds: ClassVar[tuple[str, ...]] = ("box", "discrete", "multi_discrete")
    takes_pixels = True
    clip_range: Tensor
    halted: Tensor  # 1 from where the policy has moved too far, until the next rollout

    def __init__(self, model: nn.Module, config: AlgorithmConfig | None = None, **options: Any) -> None:
        super().__init__(model, config, **options)
        self.register_buffer("clip_range", torch.tensor(self.config.clip_range))
        if self.config.target_kl is not None:
            self.register_buffer(SKIP_UPDATES, torch.zeros(()))
        normalized = self.config.normalize_obs
        if normalized and len(self.model.obs_shape) > 1:
            raise ValueError("normalize_obs is for vectors; pixels are scaled by the encoder already")
        self.normalizer: nn.Module = Normalizer(self.model.obs_shape, clip=10.0) if normalized else nn.Identity()

    @torch.no_grad()
    def prepare(self, batch: Batch) -> Batch:
        """Observations as the policy saw them, and all that updates compare with; then the statistics move on."""
        if self.config.target_kl is not None:
            self.halted.zero_()
        time_and_envs = batch["rewards"].shape
        seen = self.normalizer(batch["obs"])
        policy, values = self.model(seen.flatten(0, 1))
        next_values = self.model.values(self.normalizer(batch["next_obs"]).flatten(0, 1))
        log_probs, values, next_values = (
            each.view(time_and_envs)
            for each in (policy.log_prob(batch["raw_actions"].flatten(0, 1)), values, next_values)
        )
        advantages = generalized_advantages(
            batch["rewards"], values, next_values, batch["dones"], batch["truncated"],
            gamma=self.config.gamma, gae_lambda=self.config.gae_lambda,
        )  # fmt: skip
        if isinstance(self.normalizer, Normalizer):
            self.normalizer.merge(batch["obs"].flatten(0, 1))
        kept = {"obs": seen, "raw_actions": batch["raw_actions"], "log_probs": log_probs}
        return {**kept, "advantages": advantages, "returns": advantages + values}

    def loss(self, batch: Batch) -> Loss:
        policy, values = self.model(batch["obs"])
        log_probs, entropies = policy.log_prob_and_entropy(batch["raw_actions"])
        log_ratio, advantages, entropy = log_probs - batch["log_probs"], batch["advantages"], entropies.mean()
        if not self.config.entropy_weight:
            entropy = entropy.detach()  # else zeros would be sent back through it
        ratio, (deviation, mean) = log_ratio.exp(), torch.std_mean(advantages)
        loss = Loss(
            terms={
                "policy_loss": clipped_surrogate(ratio, (advantages - mean) / (deviation + 1e-8), self.clip_range),
                "value_loss": self.config.value_weight * (values - batch["returns"]).square().mean(),
                "entropy_loss": -self.config.entropy_weight * entropy,
            },
            metrics={"entropy": entropy, **self.distance(log_ratio.detach(), ratio.detach())},
        )
        return loss if self.config.target_kl is None else self.stopping(loss)

    def distance(self, log_ratio: Tensor, ratio: Tensor) -> Metrics:
        """How far the policy has moved from the one that acted."""
        moved = ratio - 1
        return {
            "approx_kl": (moved - log_ratio).mean(),
            "clip_fraction": (moved.abs() > self.clip_range).float().mean(),
        }

    def stopping(self, loss: Loss) -> Loss:
        """The same loss, which leaves this update and all that follow undone where the policy has moved too far."""
        too_far = loss.metrics["approx_kl"] > 1.5 * self.config.target_kl
        halted = torch.maximum(self.halted, too_far.float())
        return loss._replace(buffers={SKIP_UPDATES: halted}, metrics={**loss.metrics, SKIP_UPDATES: halted})

    def parameter_groups(self) -> list[ParameterGroup]:
        return [ParameterGroup(self.config.learning_rate, eps=1e-5, max_grad_norm=self.config.max_grad_norm)]

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action:
        policy = self.model.actor(self.model.encoder(self.normalizer(obs)))
        raw = policy.mode() if deterministic else policy.sample(generator)
        actions = raw if raw.dtype == torch.int64 else raw.clamp(-1, 1)
        return Action(actions, extras={"raw_actions": raw})
