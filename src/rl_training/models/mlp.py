"""Fully connected networks, and ensembles of them that run as one batched product."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn


class EnsembleLinear(nn.Module):
    """Batch of linear layers: [copies, rows, fan_in] -> [copies, rows, fan_out]."""

    def __init__(self, copies: int, fan_in: int, fan_out: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(fan_in)
        self.weight = nn.Parameter(torch.empty(copies, fan_in, fan_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(copies, 1, fan_out).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x, self.weight)


def mlp(
    sizes: Sequence[int], *, activation: type[nn.Module] = nn.ReLU, copies: int | None = None, layer_norm: bool = False
) -> nn.Sequential:
    """Linear layers of these sizes with activations between them, and optionally layer norm before the activation."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        linear = nn.Linear(fan_in, fan_out) if copies is None else EnsembleLinear(copies, fan_in, fan_out)
        layers += [linear, nn.LayerNorm(fan_out), activation()] if layer_norm else [linear, activation()]
    return nn.Sequential(*layers[: -2 if layer_norm else -1])


@torch.no_grad()
def orthogonal(network: nn.Sequential, *, gain: float = math.sqrt(2), last_gain: float | None = None) -> nn.Sequential:
    """Initialises weights orthogonally and biases to zero; `last_gain` is the gain of the output layer."""
    layers = _layers(network)
    for layer in layers:
        scale = last_gain if last_gain is not None and layer is layers[-1] else gain
        _initialize(layer, partial(nn.init.orthogonal_, gain=scale))
    return network


@torch.no_grad()
def xavier(network: nn.Module) -> None:
    """Initialises weights by Xavier uniform (Glorot & Bengio, 2010) and biases to zero."""
    for layer in _layers(network):
        _initialize(layer, nn.init.xavier_uniform_)


def _layers(network: nn.Module) -> list[Any]:
    return [layer for layer in network.modules() if isinstance(layer, nn.Linear | EnsembleLinear | nn.Conv2d)]


def _initialize(layer: Any, initialize: Callable[[Tensor], Any]) -> None:
    for weight in layer.weight if isinstance(layer, EnsembleLinear) else [layer.weight]:
        initialize(weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


class StateValue(nn.Module):
    """V(s), [rows]."""

    def __init__(self, obs_dim: int, hidden_sizes: Sequence[int], *, layer_norm: bool = False) -> None:
        super().__init__()
        self.net = mlp((obs_dim, *hidden_sizes, 1), layer_norm=layer_norm)

    def forward(self, obs: Tensor) -> Tensor:
        return self.net(obs).squeeze(-1)


class Critic(nn.Module):
    """Q(s, a) of `copies` independent networks, [copies, rows]."""

    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int], *, copies: int = 2) -> None:
        super().__init__()
        self.net = mlp((obs_dim + action_dim, *hidden_sizes, 1), copies=copies)

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        x = torch.cat([obs, actions], -1)
        rows, copies = x.flatten(0, -2), len(next(self.parameters()))  # REDQ passes parameters of fewer copies
        return self.net(rows.expand(copies, *rows.shape)).view(copies, *x.shape[:-1])
