"""Networks of the offline actor-critic algorithms, as their authors initialise them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from rl_training.models.actor_critic import ActorCritic, MLPTD3Model
from rl_training.models.heads import FreeMeanPolicy, SquashedGaussian, SquashedPolicy, standard_normal
from rl_training.models.layers import HiddenSizes, Layers
from rl_training.models.mlp import ReLU, small_outputs, xavier
from rl_training.models.values import Critic
from rl_training.types import EnvSpec

if TYPE_CHECKING:
    from typing_extensions import Self

ACTOR_BOUND, CRITIC_BOUND = 1e-3, 3e-3  # of the initial output layers


class MLPReBRACModel(MLPTD3Model):
    """TD3's networks with a layer norm after each activation of the critics, and small initial outputs."""

    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: HiddenSizes = (256, 256, 256)) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes)
        self.critic = Critic(obs_dim, action_dim, hidden_sizes, layer_norm="after")
        small_outputs(self.actor.net, ACTOR_BOUND)
        small_outputs(self.critic.net, CRITIC_BOUND)


class MLPAWACModel(ActorCritic):
    """Gaussian policy with an unbounded mean, and twin critics."""

    @staticmethod
    def policy(obs_dim: int, action_dim: int, hidden_sizes: HiddenSizes) -> FreeMeanPolicy:
        return FreeMeanPolicy(Layers.of(hidden_sizes).from_obs(obs_dim, action_dim), action_dim, bounds=(-20, 2))

    def sample(self, obs: Tensor) -> Tensor:
        """Samples actions and clips them to [-1, 1]."""
        actions: Tensor = self.actor(obs).sample()
        return actions.clamp(-1, 1)


class EDACPolicy(SquashedPolicy):
    """SAC's policy with a log std of at least -5."""

    def forward(self, obs: Tensor) -> SquashedGaussian:
        policy = super().forward(obs)
        return policy._replace(log_std=policy.log_std.clamp(min=-5))


class MLPEDACModel(ActorCritic):
    """`EDACPolicy` and `num_critics` critics, with small initial outputs."""

    policy = EDACPolicy

    @classmethod
    def build(cls, spec: EnvSpec, config: Any) -> Self:
        layers = Layers.from_config(spec, config)
        if layers.activation is ReLU:  # has no second derivative when it is compiled
            layers = replace(layers, activation=nn.ReLU)
        model = cls(math.prod(spec.obs_shape), spec.action_dim, layers, num_critics=config.num_critics)
        small_outputs(model.actor.net, ACTOR_BOUND)
        small_outputs(model.critic.net, CRITIC_BOUND)
        return model


class VectorField(nn.Module):
    """Maps observations, actions and further columns to a vector for each action; [rows, dims]."""

    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: HiddenSizes, *, extra: int = 0) -> None:
        super().__init__()
        layers = Layers.of(hidden_sizes)
        self.features, width = layers.features(obs_dim)
        self.net = layers.network(width + action_dim + extra, action_dim)

    def forward(self, obs: Tensor, *columns: Tensor) -> Tensor:
        vectors: Tensor = self.net(torch.cat([self.features(obs), *columns], -1))
        return vectors


class NoisePolicy(NamedTuple):
    """Actions as a function of standard normal noise; the mode has none."""

    actions: Callable[[Tensor], Tensor]
    like: Tensor

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        return self.actions(standard_normal(self.like, generator))

    def mode(self) -> Tensor:
        return self.actions(self.like)


class OneStepPolicy(VectorField):
    """Maps noise to actions in one step (FQL)."""

    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: HiddenSizes) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes)
        self.action_dim = action_dim

    def actions(self, obs: Tensor, noise: Tensor) -> Tensor:
        return super().forward(obs, noise)

    def forward(self, obs: Tensor) -> NoisePolicy:  # type: ignore[override]  # a distribution, as of every policy
        return NoisePolicy(partial(self.actions, obs), obs.new_zeros(*obs.shape[:-1], self.action_dim))


class MLPFQLModel(ActorCritic):
    """One-step policy, flow, and twin critics with a layer norm after each activation; Xavier initialisation."""

    policy = OneStepPolicy

    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: HiddenSizes = (512, 512, 512, 512)) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes)
        self.flow = VectorField(obs_dim, action_dim, hidden_sizes, extra=1)  # and the time
        self.critic = Critic(obs_dim, action_dim, hidden_sizes, layer_norm="after")
        xavier(self)
