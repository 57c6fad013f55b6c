"""TD3 (Fujimoto et al., 2018): a deterministic actor, twin critics with smoothed targets, and an actor that waits."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor

from rl_training.algorithms.core.config import ActionNoiseConfig, AlgorithmConfig, NoiseKind, ReplayConfig
from rl_training.algorithms.core.learner import Learner, frozen
from rl_training.algorithms.core.ops import bootstrapped, ensemble_squared_error
from rl_training.models import MLPTD3Model
from rl_training.types import Action, Batch, Loss


class DelayedActorConfig(AlgorithmConfig):
    policy_delay: PositiveInt = Field(2, description="updates of the critics for one of the actor and the targets")
    target_noise: NonNegativeFloat = Field(0.2, description="deviation of the noise on the target's actions")
    target_noise_clip: NonNegativeFloat = Field(0.5, description="largest size of that noise")


class TD3Config(DelayedActorConfig, ActionNoiseConfig, ReplayConfig):
    learning_starts: int = Field(25_000, ge=0, description="steps of random actions before the first update")
    action_noise: NoiseKind = Field("gaussian", description="noise added to the actions that are taken")


def smoothed_actions(actions: Tensor, *, noise: float, clip: float) -> Tensor:
    """These actions with clipped noise, so that no narrow peak of the critic can be the target."""
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

    def critic_loss(self, batch: Batch) -> Loss:
        q, target_q = self.model.critic(batch["obs"], batch["actions"]), self.target_q(batch)
        return Loss({"critic_loss": ensemble_squared_error(q, target_q)}, {"target_q_mean": target_q.mean()})

    @torch.no_grad()
    def target_q(self, batch: Batch) -> Tensor:
        c, next_obs = self.config, batch["next_obs"]
        chosen = self.target["actor"](next_obs).mode()
        next_actions = smoothed_actions(chosen, noise=c.target_noise, clip=c.target_noise_clip)
        next_q = self.target["critic"](next_obs, next_actions).amin(0)
        return bootstrapped(batch["rewards"], batch["dones"], next_q, batch.get("discounts", c.gamma))

    def actor_loss(self, batch: Batch) -> Loss:
        chosen = self.model.actor(batch["obs"]).mode()
        q = frozen(self.model.critic)(batch["obs"], chosen)[0]  # the first critic alone, as in the released code
        return self.policy_loss(q, chosen, batch)

    def policy_loss(self, q: Tensor, chosen: Tensor, batch: Batch) -> Loss:
        """Of the actions that the actor chose for these rows, and of their values."""
        return Loss({"actor_loss": -q.mean()})

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action:
        """The actor's own actions, always; where they are taken to explore, the lane adds noise."""
        return Action(self.model.actor(obs).mode())
