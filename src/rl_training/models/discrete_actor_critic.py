"""Networks of discrete SAC: a categorical policy and critics of all actions, for vectors and images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from rl_training.models.heads import Categorical, CategoricalPolicy
from rl_training.models.layers import HiddenSizes, Layers
from rl_training.models.masks import action_mask, valid_actions
from rl_training.models.values import DiscreteCritic
from rl_training.types import EnvSpec

if TYPE_CHECKING:
    from typing_extensions import Self


class EncodedPolicy(nn.Module):
    """Categorical over the valid actions of an observation."""

    def __init__(self, spec: EnvSpec, layers: Layers) -> None:
        super().__init__()
        self.encoder, width = layers.encoder(spec, dense=False)
        self.head = CategoricalPolicy(layers.network(width, spec.action_dim))
        self.register_module("mask", action_mask(spec))

    def forward(self, obs: Tensor) -> Categorical:
        policy: Categorical = self.head(self.encoder(obs), *valid_actions(self, obs))
        return policy


class DiscreteSACModel(nn.Module):
    """A policy with one encoder, and twin critics that share another; for images, (512,) is DQN's hidden layer."""

    takes_masks: ClassVar[bool] = True

    def __init__(self, spec: EnvSpec, hidden_sizes: HiddenSizes = (256, 256)) -> None:
        super().__init__()
        layers = Layers.of(hidden_sizes)
        self.obs_shape, self.action_dim = spec.obs_shape, spec.action_dim
        self.actor: Any = EncodedPolicy(spec, layers)
        encoder, width = layers.encoder(spec, dense=False)
        self.critic = DiscreteCritic(width, spec.action_dim, layers, encoder=encoder)

    @classmethod
    def build(cls, spec: EnvSpec, config: Any) -> Self:
        return cls(spec, Layers.from_config(spec, config))
