"""Discrete SAC (Christodoulou, 2019, arXiv:1910.07207): SAC with exact expectations over Discrete actions."""

import math
from typing import cast

import torch
from torch import Tensor, nn

from rl_training.algorithms.core.config import ReplayActorCriticConfig, refuse_options
from rl_training.algorithms.core.learner import Learner
from rl_training.algorithms.core.ops import ensemble_squared_error
from rl_training.algorithms.core.precision import in_precision
from rl_training.algorithms.core.temperature import TemperatureConfig, log_temperature, temperature_loss
from rl_training.models import DiscreteSACModel, valid_actions
from rl_training.models.values import DiscreteCritic
from rl_training.types import Batch, Loss

ENTROPY_FRACTION = 0.3  # `target_entropy: auto` is this fraction of log(number of valid actions)
NOISE_OPTIONS = ("action_noise", "action_noise_scale", "action_noise_theta")


class DiscreteSACConfig(TemperatureConfig, ReplayActorCriticConfig):
    """Options of SAC for Discrete actions."""


def soft_value(q: Tensor, log_probs: Tensor, alpha: Tensor | float) -> Tensor:
    """V(s) = sum over a of pi(a|s) * (min Q(s, a) - alpha * log pi(a|s)), [rows]; Q is [critics, rows, actions]."""
    return (log_probs.exp() * (q.amin(0) - alpha * log_probs)).sum(-1)


class DiscreteSAC(Learner):
    name = "sac"
    lane = "replay"
    config_type = DiscreteSACConfig
    model_type = DiscreteSACModel
    action_kinds = ("discrete",)
    takes_pixels = True
    targets = ("critic",)
    parts = ("critics", "policy")
    undecayed = ("log_alpha",)
    log_alpha: nn.Parameter

    def setup(self) -> None:
        refuse_options(self.config, NOISE_OPTIONS, "Box", "Discrete")
        highest, target = math.log(self.model.action_dim), self.config.target_entropy
        if target != "auto" and target >= highest > 0:
            raise ValueError(
                f"target_entropy must be below log({self.model.action_dim}) = {highest:.3f}, the entropy of uniform "
                f"actions, got {target}"
            )
        self.log_alpha = log_temperature(self.config)

    @in_precision
    def critics(self, batch: Batch) -> Loss:
        """Critic loss: mean of (Q(s, a) - target)^2 / 2, summed over the critics."""
        batch = self.normalized(batch)
        q, target_q = self.model.critic(batch["obs"], batch["actions"]), self.target_q(batch)
        return Loss({"critic_loss": 0.5 * ensemble_squared_error(q, target_q)}, {"target_q_mean": target_q.mean()})

    @torch.no_grad()
    def target_q(self, batch: Batch) -> Tensor:
        """TD target: r + gamma * (1 - done) * V(s'), with V of the target critics."""
        next_obs, critic = batch["next_obs"], cast(DiscreteCritic, self.target["critic"])
        log_probs = self.model.actor(next_obs).logits.log_softmax(-1)
        next_value = soft_value(critic.values(next_obs), log_probs, self.log_alpha.exp())
        return self.td_target(batch, next_value)

    @in_precision
    def policy(self, batch: Batch) -> Loss:
        """Policy loss mean of -V(s), and the temperature loss mean of log alpha * (entropy - target entropy)."""
        obs, alpha = self.normalizer(batch["obs"]), self.log_alpha.detach().exp()
        log_probs = self.model.actor(obs).logits.log_softmax(-1)
        with torch.no_grad():
            q = self.model.critic.values(obs)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        terms = {"actor_loss": -soft_value(q, log_probs, alpha).mean()}
        if self.config.tune_temperature:
            terms["temperature_loss"] = temperature_loss(self.log_alpha, -entropy, self.target_entropy(obs))
        return Loss(terms, {"entropy": entropy.mean(), "temperature": alpha})

    def target_entropy(self, obs: Tensor) -> Tensor | float:
        """The option, or a fraction of the highest entropy: log of the number of actions, or of valid ones [rows]."""
        if self.config.target_entropy != "auto":
            return float(self.config.target_entropy)
        valid = valid_actions(self.model.actor, obs)
        return ENTROPY_FRACTION * (valid[0].sum(-1).log() if valid else math.log(self.model.action_dim))
