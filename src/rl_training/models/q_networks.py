"""Q-networks for Discrete actions, and the networks of FQE."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from rl_training.models.heads import CategoricalPolicy
from rl_training.models.layers import HiddenSizes, Layers
from rl_training.models.masks import action_mask, masked, valid_actions
from rl_training.models.mlp import orthogonal
from rl_training.models.products import with_full_precision
from rl_training.models.values import one_hot_choices
from rl_training.types import EnvSpec

SIGMA_INIT = 0.5  # initial noise scale of noisy layers times sqrt(fan_in)


class NoisyLinear(nn.Module):
    """Noisy layer (Fortunato et al., 2018, arXiv:1706.10295): W = mean + scale * f(e_out) f(e_in)^T."""

    def __init__(self, fan_in: int, fan_out: int) -> None:
        super().__init__()
        self.sizes = [fan_in, fan_out]
        self.mean = nn.Linear(fan_in, fan_out)  # PyTorch's default initialisation is that of the paper
        scale = SIGMA_INIT / math.sqrt(fan_in)
        self.weight_scale = nn.Parameter(torch.full((fan_out, fan_in), scale))
        self.bias_scale = nn.Parameter(torch.full((fan_out,), scale))

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        """Noise is [inputs + outputs] for all rows, or [rows, inputs + outputs]; without it the means are used."""
        if noise is None:
            return self.mean(x)
        into, out = (noise.sign() * noise.abs().sqrt()).split(self.sizes, -1)
        if noise.dim() > 1:  # avoids one weight matrix per row
            shape = (len(x), *[1] * (x.dim() - 2), -1)
            return self.mean(x) + out.view(shape) * linear(x * into.view(shape), self.weight_scale, self.bias_scale)
        weight = self.mean.weight + self.weight_scale * torch.outer(out, into)
        return linear(x, weight, self.mean.bias + self.bias_scale * out)


class Stack(nn.Module):
    """Linear or noisy layers of these sizes, with the activations and layer norms of `layers` between them."""

    def __init__(self, sizes: Sequence[int], layers: Layers, *, noisy: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList((NoisyLinear if noisy else nn.Linear)(*pair) for pair in pairwise(sizes))
        self.between = nn.ModuleList(nn.Sequential(*layers.between(width)) for width in sizes[1:-1])
        self.noise_sizes = [sum(pair) for pair in pairwise(sizes)] if noisy else []

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        parts = () if noise is None else noise.split(self.noise_sizes, -1)
        for index, layer in enumerate(self.layers):
            x = self.between[index - 1](x) if index else x
            noises = parts[index : index + 1]
            x = layer(x, *noises) if index < len(self.between) else with_full_precision(layer, x, *noises)
        return x


class QHead(nn.Module):
    """Last layers of a Q-network: features [..., width] -> [..., actions, outputs]."""

    def __init__(
        self, sizes: Sequence[int], actions: int, layers: Layers, *, outputs: int, dueling: bool, noisy: bool
    ) -> None:
        super().__init__()
        self.shape = (actions, outputs)
        self.advantage = Stack((*sizes, actions * outputs), layers, noisy=noisy)
        self.value = Stack((*sizes, outputs), layers, noisy=noisy) if dueling else None
        streams = [self.advantage] if self.value is None else [self.advantage, self.value]
        self.noise_sizes = [sum(stream.noise_sizes) for stream in streams]

    def forward(self, features: Tensor, noise: Tensor | None = None) -> Tensor:
        parts = [None] * len(self.noise_sizes) if noise is None else noise.split(self.noise_sizes, -1)
        advantage: Tensor = self.advantage(features, parts[0]).unflatten(-1, self.shape)
        if self.value is None:
            return advantage
        value: Tensor = self.value(features, parts[1]).unsqueeze(-2)
        return value + advantage - advantage.mean(-2, keepdim=True)  # dueling


class TrunkAndHead(nn.Module):
    """Encoder and hidden layers (trunk) and a `QHead` with the last hidden layer.

    For images, hidden sizes of (512,) are the papers' networks. A noisy network takes `noise_size` normal numbers,
    shared by all rows or one set per row; without noise it uses the mean weights.
    """

    def __init__(
        self, spec: EnvSpec, hidden_sizes: HiddenSizes = (256, 256), *, outputs: int = 1,
        dueling: bool = False, noisy: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        layers = Layers.of(hidden_sizes)
        encoder, width = layers.encoder(spec, dense=False)
        hidden, self.features, last = layers.trunk(width)
        self.trunk, sizes = nn.Sequential(encoder, *hidden), (self.features, *last)
        self.head = QHead(sizes, spec.action_dim, layers, outputs=outputs, dueling=dueling, noisy=noisy)
        self.noise_size = sum(self.head.noise_sizes)
        self.register_module("mask", action_mask(spec))


class QNetwork(TrunkAndHead):
    """Q(s, .), [rows, actions]; those of invalid actions are never the largest."""

    def forward(self, obs: Tensor, noise: Tensor | None = None) -> Tensor:
        return masked(self.head(self.trunk(obs), noise).squeeze(-1), *valid_actions(self, obs))


class DQNModel(nn.Module):
    """A Q-network `q`; the target network is a copy of it."""

    takes_masks: ClassVar[bool] = True
    network: ClassVar[type[TrunkAndHead]] = QNetwork
    options: ClassVar[tuple[str, ...]] = ("dueling", "noisy")  # config options passed to the network

    def __init__(self, spec: EnvSpec, hidden_sizes: HiddenSizes = (256, 256), **options: Any) -> None:
        super().__init__()
        self.obs_shape = spec.obs_shape
        self.q = self.network(spec, hidden_sizes, **options)

    @classmethod
    def build(cls, spec: EnvSpec, config: Any) -> DQNModel:
        layers = Layers.from_config(spec, config)
        return cls(spec, layers, **{name: getattr(config, name) for name in cls.options})


class DiscreteCQLModel(DQNModel):
    options = ()


class PQNModel(DQNModel):
    """A Q-network with layer norm in all its layers, unless `network.layer_norm` is false, and orthogonal weights."""

    options = ()

    def __init__(self, spec: EnvSpec, hidden_sizes: HiddenSizes = (256, 256)) -> None:
        layers = Layers.of(hidden_sizes)
        norm = layers.layer_norm is not False
        super().__init__(spec, replace(layers, layer_norm=norm, image_norm=norm))
        orthogonal(nn.Sequential(self.q), last_gain=1.0)


class BCQModel(DiscreteCQLModel):
    """A Q-network and the behaviour policy, which clones the data."""

    def __init__(self, spec: EnvSpec, hidden_sizes: HiddenSizes = (256, 256)) -> None:
        super().__init__(spec, hidden_sizes)
        self.behaviour = CategoricalPolicy(Layers.of(hidden_sizes).from_obs(math.prod(spec.obs_shape), spec.action_dim))


class ActionValues(nn.Module):
    """Q-values [rows, samples] of Discrete actions [rows, samples] or others [rows, samples, action_dim].

    Box actions, and the one-hot vectors of MultiDiscrete actions, are inputs of the network.
    """

    def __init__(self, spec: EnvSpec, hidden_sizes: HiddenSizes) -> None:
        super().__init__()
        layers = Layers.of(hidden_sizes)
        self.encoder, features = layers.encoder(spec)
        self.discrete, self.action_sizes = spec.action_kind == "discrete", spec.action_sizes
        action_inputs = sum(spec.action_sizes) or spec.action_dim
        inputs, outputs = (features, spec.action_dim) if self.discrete else (features + action_inputs, 1)
        self.net = layers.network(inputs, outputs, layer_norm=True)  # layer norm limits extrapolation errors

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        features = self.encoder(obs)
        if self.discrete:
            return self.net(features).gather(-1, actions)
        actions = one_hot_choices(actions, self.action_sizes).to(features) if self.action_sizes else actions
        features = features.unsqueeze(1).expand(-1, actions.shape[1], -1)
        return self.net(torch.cat([features, actions], -1)).squeeze(-1)


class FQEModel(nn.Module):
    def __init__(self, spec: EnvSpec, hidden_sizes: HiddenSizes = (256, 256)) -> None:
        super().__init__()
        self.obs_shape, self.obs_dtype = spec.obs_shape, spec.obs_dtype
        self.q = ActionValues(spec, hidden_sizes)

    @classmethod
    def build(cls, spec: EnvSpec, config: Any) -> FQEModel:
        return cls(spec, Layers.from_config(spec, config))
