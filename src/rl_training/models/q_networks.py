"""Q-networks for Discrete actions, and the networks of FQE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rl_training.models.encoders import encoder_for
from rl_training.models.mlp import mlp
from rl_training.models.noisy import Stack
from rl_training.types import EnvSpec


class QHead(nn.Module):
    """Last layers of a Q-network: features [..., width] -> [..., actions, outputs].

    Dueling: value + advantage - mean of the advantages over actions.
    """

    def __init__(self, sizes: Sequence[int], actions: int, *, outputs: int, dueling: bool, noisy: bool) -> None:
        super().__init__()
        self.shape = (actions, outputs)
        self.advantage = Stack((*sizes, actions * outputs), noisy=noisy)
        self.value = Stack((*sizes, outputs), noisy=noisy) if dueling else None
        streams = [self.advantage] if self.value is None else [self.advantage, self.value]
        self.noise_sizes = [sum(stream.noise_sizes) for stream in streams]

    def forward(self, features: Tensor, noise: Tensor | None = None) -> Tensor:
        parts = [None] * len(self.noise_sizes) if noise is None else noise.split(self.noise_sizes, -1)
        advantage: Tensor = self.advantage(features, parts[0]).unflatten(-1, self.shape)
        if self.value is None:
            return advantage
        value: Tensor = self.value(features, parts[1]).unsqueeze(-2)
        return value + advantage - advantage.mean(-2, keepdim=True)


class TrunkAndHead(nn.Module):
    """Encoder and hidden layers (trunk) and a `QHead` with the last hidden layer.

    For images, hidden sizes of (512,) are the papers' networks. A noisy network takes `noise_size` normal numbers,
    shared by all rows or one set per row; without noise it uses the mean weights.
    """

    def __init__(
        self, spec: EnvSpec, hidden_sizes: Sequence[int] = (256, 256), *, outputs: int = 1, dueling: bool = False,
        noisy: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        encoder, width = encoder_for(spec, dense=False)
        widths = (width, *hidden_sizes[:-1])
        hidden = [mlp(widths), nn.ReLU()] if hidden_sizes[:-1] else []
        self.trunk, self.features = nn.Sequential(encoder, *hidden), widths[-1]
        sizes = (self.features, *hidden_sizes[-1:])
        self.head = QHead(sizes, spec.action_dim, outputs=outputs, dueling=dueling, noisy=noisy)
        self.noise_size = sum(self.head.noise_sizes)


class QNetwork(TrunkAndHead):
    """Q(s, .), [rows, actions]."""

    def forward(self, obs: Tensor, noise: Tensor | None = None) -> Tensor:
        return self.head(self.trunk(obs), noise).squeeze(-1)


class DQNModel(nn.Module):
    """A Q-network `q`; the target network is a copy of it."""

    network: ClassVar[type[TrunkAndHead]] = QNetwork
    options: ClassVar[tuple[str, ...]] = ("dueling", "noisy")  # config options passed to the network

    def __init__(self, spec: EnvSpec, hidden_sizes: Sequence[int] = (256, 256), **options: Any) -> None:
        super().__init__()
        self.obs_shape = spec.obs_shape
        self.q = self.network(spec, hidden_sizes, **options)

    @classmethod
    def build(cls, spec: EnvSpec, config: Any) -> DQNModel:
        return cls(spec, config.hidden_sizes, **{name: getattr(config, name) for name in cls.options})


class BoxQNetwork(nn.Module):
    """Q-values [rows, choices] of given actions [rows, choices, action_dim]."""

    def __init__(self, spec: EnvSpec, hidden_sizes: Sequence[int] = (256, 256)) -> None:
        super().__init__()
        self.encoder, features = encoder_for(spec)
        self.net = mlp((features + spec.action_dim, *hidden_sizes, 1), layer_norm=True)

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        features = self.encoder(obs).unsqueeze(1).expand(-1, actions.shape[1], -1)
        return self.net(torch.cat([features, actions], -1)).squeeze(-1)


class DiscreteQNetwork(nn.Module):
    """Q-values [rows, choices] of given actions [rows, choices]."""

    def __init__(self, spec: EnvSpec, hidden_sizes: Sequence[int] = (256, 256)) -> None:
        super().__init__()
        self.encoder, features = encoder_for(spec)
        self.net = mlp((features, *hidden_sizes, spec.action_dim), layer_norm=True)

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.net(self.encoder(obs)).gather(-1, actions)


class FQEModel(nn.Module):
    """Q-network of FQE; layer norm limits extrapolation errors."""

    def __init__(self, spec: EnvSpec, hidden_sizes: Sequence[int] = (256, 256)) -> None:
        super().__init__()
        self.obs_shape, self.obs_dtype = spec.obs_shape, spec.obs_dtype
        network = DiscreteQNetwork if spec.action_kind == "discrete" else BoxQNetwork
        self.q: nn.Module = network(spec, hidden_sizes)

    @classmethod
    def build(cls, spec: EnvSpec, config: Any) -> FQEModel:
        return cls(spec, config.hidden_sizes)
