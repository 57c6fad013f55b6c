"""Soft actor-critic (Haarnoja et al., 2018): maximises return and entropy, with a temperature that tunes itself."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor, nn

from rl_training.algorithms.core.config import ActionNoiseConfig, AlgorithmConfig, ReplayConfig
from rl_training.algorithms.core.learner import Learner, frozen
from rl_training.algorithms.core.ops import bootstrapped, ensemble_squared_error
from rl_training.models import MLPSACModel
from rl_training.types import Action, Batch, Loss


class TemperatureConfig(AlgorithmConfig):
    temperature: PositiveFloat = Field(1.0, description="weight of the entropy; where tuning starts")
    tune_temperature: bool = Field(True, description="move the temperature until entropy meets its target")
    target_entropy: float | Literal["auto"] = Field("auto", description="auto: minus the number of action dimensions")


class SACConfig(TemperatureConfig, ActionNoiseConfig, ReplayConfig):
    """Nothing beyond the three."""


def temperature_loss(log_alpha: Tensor, log_prob: Tensor, target_entropy: float) -> Tensor:
    """Raises alpha while the policy's entropy is below its target, lowers it above."""
    return -(log_alpha * (log_prob.detach() + target_entropy)).mean()


def sac_actor_loss(q: Tensor, log_prob: Tensor, alpha: Tensor | float) -> Tensor:
    """Of actions drawn from the policy: their values are climbed, and so is their entropy, by its price."""
    return (alpha * log_prob - q).mean()


class SACAlgorithm(Learner):
    name = "sac"
    lane = "replay"
    config_type: ClassVar[type[AlgorithmConfig]] = SACConfig
    model_type = MLPSACModel
    action_kinds: ClassVar[tuple[str, ...]] = ("box",)
    targets = ("critic",)

    def __init__(self, model: nn.Module, config: AlgorithmConfig | None = None, **options: Any) -> None:
        super().__init__(model, config, **options)
        c = self.config
        self.target_entropy = -float(self.model.action_dim) if c.target_entropy == "auto" else c.target_entropy
        self.log_alpha = nn.Parameter(torch.tensor(math.log(c.temperature)), requires_grad=c.tune_temperature)

    def loss(self, batch: Batch) -> Loss:
        alpha = self.log_alpha.detach().exp()
        critic, actor = self.critic_loss(batch, alpha), self.actor_loss(batch["obs"], alpha)
        return critic.plus(actor.terms, actor.metrics)

    def critic_loss(self, batch: Batch, alpha: Tensor) -> Loss:
        q, target_q = self.model.critic(batch["obs"], batch["actions"]), self.target_q(batch, alpha)
        return Loss({"critic_loss": 0.5 * ensemble_squared_error(q, target_q)}, {"target_q_mean": target_q.mean()})

    def actor_loss(self, obs: Tensor, alpha: Tensor) -> Loss:
        """The actor's, and the temperature's where it is tuned."""
        actions, log_prob = self.model.actor(obs).sample_with_log_prob()
        terms = {"actor_loss": sac_actor_loss(self.policy_value(obs, actions), log_prob, alpha)}
        if self.config.tune_temperature:
            terms["temperature_loss"] = temperature_loss(self.log_alpha, log_prob, self.target_entropy)
        return Loss(terms, {"entropy": -log_prob.mean(), "temperature": alpha})

    def policy_value(self, obs: Tensor, actions: Tensor) -> Tensor:
        """What the actor climbs; gradients pass through the actions alone."""
        q: Tensor = frozen(self.model.critic)(obs, actions)
        return q.amin(0)

    def next_value(self, next_obs: Tensor, actions: Tensor) -> Tensor:
        """What the targets say of the policy's next actions, before its entropy is paid for."""
        q: Tensor = self.target["critic"](next_obs, actions)
        return q.amin(0)

    @torch.no_grad()
    def target_q(self, batch: Batch, alpha: Tensor) -> Tensor:
        next_obs = batch["next_obs"]
        actions, log_prob = self.model.actor(next_obs).sample_with_log_prob()
        next_q = self.next_value(next_obs, actions) - alpha * log_prob
        discounts = batch.get("discounts", self.config.gamma)
        return bootstrapped(batch["rewards"], batch["dones"], next_q, discounts)

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action:
        policy = self.model.actor(obs)
        return Action(policy.mode() if deterministic else policy.sample(generator))
