"""Soft actor-critic (Haarnoja et al., 2018, arXiv:1812.05905) with automatic temperature tuning."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rl_training.algorithms.core.config import ActionNoiseConfig, AlgorithmConfig
from rl_training.algorithms.core.learner import Learner, frozen
from rl_training.algorithms.core.ops import ensemble_squared_error
from rl_training.algorithms.core.precision import in_precision
from rl_training.algorithms.core.temperature import box_target_entropy, log_temperature, temperature_loss
from rl_training.algorithms.discrete_sac import DiscreteSAC, DiscreteSACConfig
from rl_training.models import MLPSACModel
from rl_training.types import Batch, EnvSpec, Loss


class SACConfig(ActionNoiseConfig, DiscreteSACConfig):
    """Options for Box and Discrete actions; exploration noise is for Box actions only."""


def sac_actor_loss(q: Tensor, log_prob: Tensor, alpha: Tensor | float) -> Tensor:
    """Policy loss: mean of alpha * log pi(a|s) - min Q(s, a) over sampled actions."""
    return (alpha * log_prob - q).mean()


def sac_policy_loss(q: Tensor, log_prob: Tensor, log_alpha: Tensor, target_entropy: float | None) -> Loss:
    """Policy loss of sampled actions, plus the temperature loss if there is a target entropy."""
    alpha = log_alpha.detach().exp()
    terms = {"actor_loss": sac_actor_loss(q, log_prob, alpha)}
    if target_entropy is not None:
        terms["temperature_loss"] = temperature_loss(log_alpha, log_prob, target_entropy)
    return Loss(terms, {"entropy": -log_prob.mean(), "temperature": alpha})


def frozen_min_q(critic: nn.Module, obs: Tensor, actions: Tensor) -> Tensor:
    """min over critics of Q(s, a), with gradients for the actions only; [rows]."""
    return frozen(critic)(obs, actions).amin(0)


class SACAlgorithm(Learner):
    name = "sac"
    lane = "replay"
    config_type: ClassVar[type[AlgorithmConfig]] = SACConfig
    model_type = MLPSACModel
    action_kinds: ClassVar[tuple[str, ...]] = ("box", "discrete")
    discrete_type: ClassVar[type[Learner] | None] = DiscreteSAC
    targets: ClassVar[tuple[str, ...]] = ("critic",)
    parts = ("critics", "policy")
    undecayed = ("log_alpha",)
    log_alpha: nn.Parameter
    target_entropy: float | None

    @classmethod
    def build(cls, spec: EnvSpec, config: AlgorithmConfig | None = None, **options: Any) -> Any:
        """Creates a learner of this class, or for Discrete actions a `DiscreteSAC`, which is no subclass."""
        return super().build(spec, config, **options)

    def setup(self) -> None:
        self.log_alpha = log_temperature(self.config)
        self.target_entropy = box_target_entropy(self.config, self.model.action_dim)

    @in_precision
    def critics(self, batch: Batch) -> Loss:
        return self.critic_loss(self.normalized(batch), self.log_alpha.detach().exp())

    def critic_loss(self, batch: Batch, alpha: Tensor) -> Loss:
        """Critic loss: mean of (Q(s, a) - target)^2 / 2, summed over the critics."""
        q, target_q = self.model.critic(batch["obs"], batch["actions"]), self.target_q(batch, alpha)
        return Loss({"critic_loss": 0.5 * ensemble_squared_error(q, target_q)}, {"target_q_mean": target_q.mean()})

    @torch.no_grad()
    def target_q(self, batch: Batch, alpha: Tensor) -> Tensor:
        """TD target: r + gamma * (1 - done) * (min target Q(s', a') - alpha * log pi(a'|s'))."""
        next_obs = batch["next_obs"]
        actions, log_prob = self.model.actor(next_obs).sample_with_log_prob()
        next_q = self.next_value(next_obs, actions) - alpha * log_prob
        return self.td_target(batch, next_q)

    def next_value(self, next_obs: Tensor, actions: Tensor) -> Tensor:
        """Q-value of the next actions in the TD target, without the entropy term."""
        return self.target["critic"](next_obs, actions).amin(0)

    @in_precision
    def policy(self, batch: Batch) -> Loss:
        """Policy loss: mean of alpha * log pi(a|s) - min Q(s, a) with a from pi(s), and the temperature loss."""
        obs = self.normalizer(batch["obs"])
        actions, log_prob = self.model.actor(obs).sample_with_log_prob()
        return sac_policy_loss(self.policy_value(obs, actions), log_prob, self.log_alpha, self.target_entropy)

    def policy_value(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Q-value that the actor maximises."""
        return frozen_min_q(self.model.critic, obs, actions)
