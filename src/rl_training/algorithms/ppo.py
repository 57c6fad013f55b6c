"""Proximal policy optimization (Schulman et al., 2017, arXiv:1707.06347) with GAE (arXiv:1506.02438)."""

from typing import Any, ClassVar

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from rl_training.algorithms.core.config import RolloutConfig
from rl_training.algorithms.core.learner import Learner
from rl_training.algorithms.core.memory import memory_arguments, memory_around, policy_and_memory
from rl_training.data import generalized_advantages
from rl_training.models import PPOModel
from rl_training.models.layers import Activation
from rl_training.types import HALTED, Action, Batch, Loss, Metrics, ParameterGroup


class PPOConfig(RolloutConfig):
    batch_size: int = Field(64, ge=2, description="steps per update; must divide num_steps * num_envs")
    hidden_sizes: tuple[PositiveInt, ...] = Field((64, 64), description="widths of the hidden layers")
    max_grad_norm: PositiveFloat | None = Field(0.5, description="maximum norm of the gradient; none: no clipping")
    clip_range: PositiveFloat = Field(0.2, description="clip range of the probability ratio")
    value_weight: float = Field(0.5, ge=0, description="weight of the value loss")
    entropy_weight: float = Field(0.0, ge=0, description="weight of the entropy bonus")
    target_kl: PositiveFloat | None = Field(
        None, description="skip the remaining updates on a rollout once approx_kl exceeds 1.5 times this; none: never"
    )
    activation: Activation = Field("tanh", description="activation of the hidden layers")
    orthogonal_init: bool = Field(True, description="orthogonal initialisation, small in the policy's last layer")
    log_std_init: float = Field(0.0, description="initial log std of a Box policy")


def clipped_surrogate(ratio: Tensor, advantages: Tensor, clip_range: Tensor) -> Tensor:
    """Policy loss: -mean of min(ratio * A, clip(ratio, 1 - c, 1 + c) * A)."""
    # Where the clipped term is the minimum it equals A + c * |A|, so only that is computed.
    return -torch.minimum(ratio * advantages, advantages + clip_range * advantages.abs()).mean()


class PPOAlgorithm(Learner):
    name = "ppo"
    lane = "rollout"
    config_type = PPOConfig
    model_type = PPOModel
    action_kinds: ClassVar[tuple[str, ...]] = ("box", "discrete", "multi_discrete")
    takes_pixels = True
    obs_clip = 10.0
    clip_range: Tensor
    halted: Tensor  # 1 once target_kl is exceeded, until the next rollout

    def setup(self) -> None:
        self.register_buffer("clip_range", torch.tensor(self.config.clip_range))
        if self.config.target_kl is not None:
            self.register_buffer(HALTED, torch.zeros(()))

    @torch.no_grad()
    def prepare(self, batch: Batch) -> Batch:
        """Computes advantages, returns and old log-probabilities, then updates the observation statistics."""
        if self.config.target_kl is not None:
            self.halted.zero_()
        obs = self.normalizer(batch["obs"])
        rows, next_rows = obs.flatten(0, 1), self.normalizer(batch["next_obs"]).flatten(0, 1)  # [time * envs, ...]
        before, after = memory_around(self.model, rows, batch)  # () without recurrent layers
        policy, values = self.model(rows, *before)
        next_values = self.model.values(next_rows, *after).view_as(batch["rewards"])
        log_probs = policy.log_prob(batch["raw_actions"].flatten(0, 1)).view_as(batch["rewards"])
        values = values.view_as(batch["rewards"])
        advantages = generalized_advantages(
            batch["rewards"], values, next_values, batch["dones"], batch["truncated"],
            gamma=self.config.gamma, gae_lambda=self.config.gae_lambda,
        )  # fmt: skip
        super().prepare(batch)  # adds the observations to the statistics, which were used above
        columns = {"obs": obs, "raw_actions": batch["raw_actions"], "log_probs": log_probs}
        return {**columns, "advantages": advantages, "returns": advantages + values}

    def loss(self, batch: Batch) -> Loss:
        """Clipped surrogate + value_weight * mean (V(s) - return)^2 - entropy_weight * entropy."""
        policy, values = self.model(batch["obs"], *memory_arguments(batch))
        log_probs, entropies = policy.log_prob_and_entropy(batch["raw_actions"])
        log_ratio = log_probs - batch["log_probs"]
        ratio = log_ratio.exp()
        std, mean = torch.std_mean(batch["advantages"])
        advantages = (batch["advantages"] - mean) / (std + 1e-8)
        entropy = entropies.mean()
        if not self.config.entropy_weight:
            entropy = entropy.detach()  # saves a backward pass of zeros
        loss = Loss(
            terms={
                "policy_loss": clipped_surrogate(ratio, advantages, self.clip_range),
                "value_loss": self.config.value_weight * (values - batch["returns"]).square().mean(),
                "entropy_loss": -self.config.entropy_weight * entropy,
            },
            metrics={"entropy": entropy, **self.ratio_metrics(log_ratio.detach(), ratio.detach())},
        )
        return loss if self.config.target_kl is None else self.with_early_stopping(loss)

    def ratio_metrics(self, log_ratio: Tensor, ratio: Tensor) -> Metrics:
        """approx_kl = mean of (ratio - 1) - log ratio, and the fraction of clipped ratios."""
        change = ratio - 1
        clipped = (change.abs() > self.clip_range).float()
        return {"approx_kl": (change - log_ratio).mean(), "clip_fraction": clipped.mean()}

    def with_early_stopping(self, loss: Loss) -> Loss:
        """Skips this update and all later ones on the rollout once approx_kl > 1.5 * target_kl."""
        exceeded = loss.metrics["approx_kl"] > 1.5 * self.config.target_kl
        halted = torch.maximum(self.halted, exceeded.float())
        return loss._replace(buffers={HALTED: halted}, metrics={**loss.metrics, HALTED: halted})

    def parameter_groups(self) -> list[ParameterGroup]:
        return [ParameterGroup(self.config.learning_rate, eps=1e-5, max_grad_norm=self.config.max_grad_norm)]

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action:
        policy, memory, columns = policy_and_memory(self.model, self.normalizer(obs), memory)
        raw = policy.mode() if deterministic else policy.sample(generator)
        actions = raw.clamp(-1, 1) if raw.is_floating_point() else raw
        return Action(actions, memory, extras={"raw_actions": raw, **columns})
