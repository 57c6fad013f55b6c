"""Networks of the actor-critic and imitation algorithms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from rl_training.models import heads
from rl_training.models.layers import HiddenSizes, Layers
from rl_training.models.mlp import last_layer, mlp, orthogonal, xavier
from rl_training.models.values import Critic, DiscreteCritic, StateValue, one_hot_choices
from rl_training.types import EnvSpec

if TYPE_CHECKING:
    from typing_extensions import Self

LAST_GAIN = 0.01  # of output layers, in the reference code of CQL and Cal-QL


def categorical_policy(obs_dim: int, actions: int, hidden_sizes: HiddenSizes) -> heads.CategoricalPolicy:
    return heads.CategoricalPolicy(Layers.of(hidden_sizes).from_obs(obs_dim, actions))


class MLPBCModel(nn.Module):
    """Gaussian policy for Box actions, categorical policy for Discrete actions.

    `action_sizes` are the numbers of actions of the choices of a MultiDiscrete action: one categorical for each.
    """

    def __init__(
        self, obs_dim: int, action_dim: int, hidden_sizes: HiddenSizes = (256, 256), *,
        discrete: bool = False, action_sizes: Sequence[int] = (),
    ) -> None:  # fmt: skip
        super().__init__()
        self.obs_shape = (obs_dim,)
        self.actor: nn.Module
        if action_sizes:
            logits = Layers.of(hidden_sizes).from_obs(obs_dim, sum(action_sizes))
            self.actor = heads.MultiCategoricalPolicy(logits, action_sizes)
        else:
            policy = categorical_policy if discrete else heads.BoundedMeanPolicy
            self.actor = policy(obs_dim, action_dim, hidden_sizes)

    @classmethod
    def build(cls, spec: EnvSpec, config: Any) -> MLPBCModel:
        layers, discrete, sizes = Layers.from_config(spec, config), spec.action_kind == "discrete", spec.action_sizes
        return cls(math.prod(spec.obs_shape), spec.action_dim, layers, discrete=discrete, action_sizes=sizes)


class ActorCritic(nn.Module):
    """Policy and critics; for Discrete actions, a categorical policy and critics with one output each."""

    policy: ClassVar[Callable[..., nn.Module]]  # of obs_dim, action_dim and hidden_sizes

    def __init__(
        self, obs_dim: int, action_dim: int, hidden_sizes: HiddenSizes = (256, 256), *, num_critics: int = 2,
        discrete: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.obs_shape, self.action_dim = (obs_dim,), action_dim
        policy = categorical_policy if discrete else self.policy
        self.actor: Any = policy(obs_dim, action_dim, hidden_sizes)
        self.critic = (DiscreteCritic if discrete else Critic)(obs_dim, action_dim, hidden_sizes, copies=num_critics)

    @classmethod
    def build(cls, spec: EnvSpec, config: Any) -> Self:
        return cls(math.prod(spec.obs_shape), spec.action_dim, Layers.from_config(spec, config))


class MLPSACModel(ActorCritic):
    policy = heads.SquashedPolicy


class MLPCQLModel(MLPSACModel):
    """SAC's networks with the widths of critics, the initial weights and the log std of CQL's reference code."""

    def __init__(
        self, obs_dim: int, action_dim: int, hidden_sizes: HiddenSizes = (256, 256), *,
        critic_hidden_sizes: Sequence[int] | None = None, log_std_offset: float | None = None,
        initialization: str = "default",
    ) -> None:  # fmt: skip
        super().__init__(obs_dim, action_dim, hidden_sizes)
        if log_std_offset is not None:
            self.actor = heads.SquashedPolicy(obs_dim, action_dim, hidden_sizes, log_std_offset=log_std_offset)
        if critic_hidden_sizes is not None:
            layers = replace(Layers.of(hidden_sizes), hidden_sizes=tuple(critic_hidden_sizes))
            self.critic = Critic(obs_dim, action_dim, layers)
        if initialization == "corl":  # Xavier in the actor's output layer, orthogonal critics
            orthogonal(self.critic.net, last_gain=LAST_GAIN)
            xavier(last_layer(self.actor.net), gain=LAST_GAIN)
        elif initialization == "cal_ql":  # all orthogonal
            for part in (self.actor, self.critic):
                orthogonal(part.net, last_gain=LAST_GAIN)

    @classmethod
    def build(cls, spec: EnvSpec, config: Any) -> Self:
        if config.critic_hidden_sizes is not None and config.own_network is not None:
            raise ValueError(f"critic_hidden_sizes cannot change the layers of network {config.network.kind}; unset it")
        return cls(
            math.prod(spec.obs_shape), spec.action_dim, Layers.from_config(spec, config),
            critic_hidden_sizes=config.critic_hidden_sizes, log_std_offset=config.log_std_offset,
            initialization=config.initialization,
        )  # fmt: skip


class MLPTD3Model(ActorCritic):
    policy = heads.DeterministicPolicy


class MLPREDQModel(MLPSACModel):
    """SAC's networks with `num_critics` critics and Xavier initialisation, as in the authors' code."""

    @classmethod
    def build(cls, spec: EnvSpec, config: Any) -> Self:
        layers = Layers.from_config(spec, config)
        model = cls(math.prod(spec.obs_shape), spec.action_dim, layers, num_critics=config.num_critics)
        xavier(model)
        return model


class MLPIQLModel(ActorCritic):
    """Gaussian policy with a bounded mean (categorical for Discrete actions), twin critics and a state value."""

    policy = heads.BoundedMeanPolicy
    value_norm = False  # layer norm in the state value network

    def __init__(
        self, obs_dim: int, action_dim: int, hidden_sizes: HiddenSizes = (256, 256), *, discrete: bool = False
    ) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes, discrete=discrete)
        self.value = StateValue(obs_dim, hidden_sizes, layer_norm=self.value_norm)
        for part in (self.actor, self.critic, self.value):
            orthogonal(part.net)

    @classmethod
    def build(cls, spec: EnvSpec, config: Any) -> Self:
        kind = {"discrete": True} if spec.action_kind == "discrete" else {}  # a subclass may be for Box actions only
        return cls(math.prod(spec.obs_shape), spec.action_dim, Layers.from_config(spec, config), **kind)

    def sample(self, obs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Actions in [-1, 1], or numbers of Discrete actions."""
        actions: Tensor = self.actor(obs).sample(generator)
        return actions.clamp(-1, 1) if actions.is_floating_point() else actions


class MLPXQLModel(MLPIQLModel):
    """IQL's networks with layer norm in the state value, which stabilises the exponential loss."""

    value_norm = True


class MLPGAILDiscriminator(nn.Module):
    """Logit of "this step is the expert's" for each (observation, action)."""

    def __init__(
        self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int] = (100, 100), *, discrete: bool = False,
        spectral_norm: bool = False, action_sizes: Sequence[int] = (),
    ) -> None:  # fmt: skip
        super().__init__()
        self.obs_shape, self.action_dim, self.discrete = (obs_dim,), action_dim, discrete
        self.action_sizes = (action_dim,) if discrete else tuple(action_sizes)  # of each choice; () for Box actions
        self.net = mlp((obs_dim + (sum(self.action_sizes) or action_dim), *hidden_sizes, 1), activation=nn.Tanh)
        if spectral_norm:
            for layer in self.net:
                if isinstance(layer, nn.Linear):
                    register_parametrization(layer, "weight", UnitSpectralNorm())

    @classmethod
    def build(cls, spec: EnvSpec, config: Any) -> MLPGAILDiscriminator:
        return cls(
            math.prod(spec.obs_shape), spec.action_dim, config.hidden_sizes,
            discrete=spec.action_kind == "discrete", spectral_norm=config.spectral_norm, action_sizes=spec.action_sizes,
        )  # fmt: skip

    def inputs(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Concatenates observations and actions; choices become one-hot vectors."""
        if self.action_sizes:
            actions = one_hot_choices(actions.unsqueeze(-1) if self.discrete else actions, self.action_sizes).to(obs)
        return torch.cat([obs, actions], -1)

    def logits(self, inputs: Tensor) -> Tensor:
        return self.net(inputs).squeeze(-1)

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.logits(self.inputs(obs, actions))


class UnitSpectralNorm(nn.Module):
    """Divides a weight by its largest singular value, computed exactly because the matrices are small."""

    def forward(self, weight: Tensor) -> Tensor:
        return weight / torch.linalg.matrix_norm(weight, 2)
