"""TD3+BC (Fujimoto & Gu, 2021): TD3 on a dataset, its actor held to the data's actions by squared error."""

from __future__ import annotations

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor

from rl_training.algorithms.config import OfflineConfig, Rate
from rl_training.algorithms.learner import OfflineLearner, frozen
from rl_training.algorithms.ops import bootstrapped, ensemble_squared_error
from rl_training.models import MLPTD3Model
from rl_training.types import Batch, Loss


class TD3BCConfig(OfflineConfig):
    alpha: PositiveFloat = Field(2.5, description="weight of the critic beside cloning: alpha / mean |Q|")
    policy_delay: PositiveInt = Field(2, description="updates of the critics for one of the actor and the targets")
    target_noise: NonNegativeFloat = Field(0.2, description="deviation of the noise on the target's actions")
    target_noise_clip: NonNegativeFloat = Field(0.5, description="largest size of that noise")
    tau: Rate = Field(0.005, description="share of the way the targets go at each of their moves")
    normalize_obs: bool = Field(True, description="standardise observations by the dataset's mean and deviation")


def smoothed(actions: Tensor, *, noise: float, clip: float) -> Tensor:
    """These actions with clipped noise, so that no narrow peak of the critic can be the target."""
    return (actions + (noise * torch.randn_like(actions)).clamp(-clip, clip)).clamp(-1, 1)


def td3_bc_loss(q: Tensor, chosen: Tensor, actions: Tensor, alpha: float) -> Loss:
    """The actor's: its actions' values, scaled by their own mean size, and its distance from the data."""
    q_weight = alpha / q.abs().mean().detach()
    terms = {"actor_loss": -q_weight * q.mean(), "bc_loss": (chosen - actions).square().mean()}
    return Loss(terms, {"q_weight": q_weight})


class TD3BC(OfflineLearner):
    name = "td3_bc"
    config_type = TD3BCConfig
    model_type = MLPTD3Model
    action_kinds = ("box",)
    targets = ("actor", "critic")

    def phases(self, update: int) -> tuple[str, ...]:
        delayed = (update + 1) % self.config.policy_delay == 0
        return ("critic_loss", "actor_loss", "targets") if delayed else ("critic_loss",)

    def critic_loss(self, batch: Batch) -> Loss:
        q, target_q = self.model.critic(self.normalizer(batch["obs"]), batch["actions"]), self.target_q(batch)
        return Loss({"critic_loss": ensemble_squared_error(q, target_q)}, {"target_q_mean": target_q.mean()})

    @torch.no_grad()
    def target_q(self, batch: Batch) -> Tensor:
        c, next_obs = self.config, self.normalizer(batch["next_obs"])
        chosen = self.target["actor"](next_obs).mode()
        next_actions = smoothed(chosen, noise=c.target_noise, clip=c.target_noise_clip)
        next_q = self.target["critic"](next_obs, next_actions).amin(0)
        return bootstrapped(batch["rewards"], batch["dones"], next_q, c.gamma)

    def actor_loss(self, batch: Batch) -> Loss:
        obs = self.normalizer(batch["obs"])
        chosen = self.model.actor(obs).mode()
        q = frozen(self.model.critic)(obs, chosen)[0]  # the first critic alone, as in the released code
        return td3_bc_loss(q, chosen, batch["actions"], self.config.alpha)
