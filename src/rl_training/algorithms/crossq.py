"""CrossQ (Bhatt et al., 2024, arXiv:1902.05605): SAC with batch renormalisation and without target networks."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from rl_training.algorithms.core.ops import ensemble_squared_error
from rl_training.algorithms.core.precision import in_precision
from rl_training.algorithms.sac import SACAlgorithm, SACConfig, sac_policy_loss
from rl_training.models import Layers
from rl_training.models.batch_renorm import RenormCritic, RenormPolicy
from rl_training.types import Batch, EnvSpec, Loss, ParameterGroup

if TYPE_CHECKING:
    from typing_extensions import Self

ADAM_BETAS = (0.5, 0.999)


class CrossQConfig(SACConfig):
    takes_simba: ClassVar[tuple[str, ...]] = ("simba",)  # batch renormalisation would replace the norms of simba_v2

    learning_rate: PositiveFloat = Field(1e-3, description="learning rate")
    learning_starts: int = Field(5_000, ge=0, description="steps with random actions before the first update")
    critic_hidden_sizes: tuple[PositiveInt, ...] = Field(
        (2048, 2048), description="widths of the hidden layers of the critics"
    )
    tau: float = Field(1.0, ge=1, le=1, description="always 1, because there are no target networks")
    policy_delay: PositiveInt = Field(3, description="critic updates per update of the actor and the temperature")


class MLPCrossQModel(nn.Module):
    """SAC's policy and twin critics with batch renormalisation; the critics' widths are `critic_hidden_sizes`."""

    def __init__(self, obs_dim: int, action_dim: int, layers: Layers, critic_layers: Layers) -> None:
        super().__init__()
        self.obs_shape, self.action_dim = (obs_dim,), action_dim
        self.actor = RenormPolicy(obs_dim, action_dim, layers)
        self.critic = RenormCritic(obs_dim, action_dim, critic_layers)

    @classmethod
    def build(cls, spec: EnvSpec, config: Any) -> Self:
        layers = Layers.from_config(spec, config)
        wide = replace(layers, hidden_sizes=config.critic_hidden_sizes)
        return cls(math.prod(spec.obs_shape), spec.action_dim, layers, wide)


class CrossQAlgorithm(SACAlgorithm):
    """SAC whose critics see (s, a) and (s', a') in one batch, and are their own target networks."""

    name = "crossq"
    config_type = CrossQConfig
    model_type: ClassVar[Any] = MLPCrossQModel
    targets = ()

    def phases(self, update: int) -> tuple[str, ...]:
        return ("critics", "policy") if (update + 1) % self.config.policy_delay == 0 else ("critics",)

    def critic_loss(self, batch: Batch, alpha: Tensor) -> Loss:
        """Critic loss: mean of (Q(s, a) - target)^2 / 2, summed over the critics, with Q of both steps by one pass."""
        with torch.no_grad():
            next_actions, log_prob = self.model.actor(batch["next_obs"]).sample_with_log_prob()
        obs = torch.cat([batch["obs"], batch["next_obs"]])
        actions = torch.cat([batch["actions"], next_actions])
        values, buffers = self.model.critic.with_statistics(obs, actions, "model.critic.")
        q, next_q = values.chunk(2, -1)
        next_value = next_q.detach().amin(0) - alpha * log_prob
        target_q = self.td_target(batch, next_value)
        terms = {"critic_loss": 0.5 * ensemble_squared_error(q, target_q)}
        return Loss(terms, {"target_q_mean": target_q.mean()}, buffers)

    @in_precision
    def policy(self, batch: Batch) -> Loss:
        """SAC's policy loss; the critics normalise by their running statistics, the actor by those of the batch."""
        obs = self.normalizer(batch["obs"])
        policy, buffers = self.model.actor.with_statistics(obs, "model.actor.")
        actions, log_prob = policy.sample_with_log_prob()
        loss = sac_policy_loss(self.policy_value(obs, actions), log_prob, self.log_alpha, self.target_entropy)
        return Loss(loss.terms, loss.metrics, buffers)

    def parameter_groups(self) -> list[ParameterGroup]:
        *_, networks = super().parameter_groups()
        temperature = networks._replace(names=("log_alpha",), kind="adam", weight_decay=0.0)
        return [temperature, networks._replace(betas=ADAM_BETAS)]
