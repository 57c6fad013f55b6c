"""Fully connected networks, and ensembles of them that run as one batched product."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Literal, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm as normalized

from rl_training.models.products import Linear, ensemble_linear

Network = TypeVar("Network", bound=nn.Module)
Norm: TypeAlias = bool | Literal["after"]  # layer norm before each activation, none, or after each activation


class _GatedReLU(torch.autograd.Function):
    """ReLU whose gradient is multiplied by the sign of its output."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.relu()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (output,) = ctx.saved_tensors
        return gradient * output.sign()


class ReLU(nn.ReLU):
    """ReLU that compiles to fast code on a CPU.

    Compiled, PyTorch's own saves a mask of bool for backward, whose store is not vectorised and takes ten times as
    long as the ReLU itself.
    """

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type == "cpu" and torch.compiler.is_dynamo_compiling():  # not in exported policies
            gated: Tensor = _GatedReLU.apply(x)
            return gated
        return super().forward(x)


class EnsembleLinear(nn.Module):
    """Batch of linear layers: [copies, rows, fan_in] -> [copies, rows, fan_out]."""

    def __init__(self, copies: int, fan_in: int, fan_out: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(fan_in)
        self.weight = nn.Parameter(torch.empty(copies, fan_in, fan_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(copies, 1, fan_out).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        return ensemble_linear(x, self.weight, self.bias)


class EnsembleLayerNorm(nn.Module):
    """Layer norm of [copies, rows, width] with a scale and a shift for each copy."""

    def __init__(self, copies: int, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(copies, 1, width)), nn.Parameter(torch.zeros(copies, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        return normalized(x, x.shape[-1:]) * self.weight + self.bias


def new_linear(fan_in: int, fan_out: int, copies: int | None = None) -> Linear | EnsembleLinear:
    return Linear(fan_in, fan_out) if copies is None else EnsembleLinear(copies, fan_in, fan_out)


def new_layer_norm(width: int, copies: int | None = None) -> nn.Module:
    return nn.LayerNorm(width) if copies is None else EnsembleLayerNorm(copies, width)


def mlp(
    sizes: Sequence[int], *, activation: type[nn.Module] = ReLU, copies: int | None = None, layer_norm: Norm = False
) -> nn.Sequential:
    """Linear layers of these sizes with activations between them, and optionally layer norms."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        between = [*([new_layer_norm(fan_out, copies)] if layer_norm else []), activation()]
        layers += [new_linear(fan_in, fan_out, copies), *(reversed(between) if layer_norm == "after" else between)]
    return nn.Sequential(*layers[: -2 if layer_norm else -1])


@torch.no_grad()
def orthogonal(network: Network, *, gain: float = math.sqrt(2), last_gain: float | None = None) -> Network:
    """Initialises weights orthogonally and biases to zero; `last_gain` is the gain of the output layer."""
    layers = _layers(network)
    for layer in layers:
        scale = last_gain if last_gain is not None and layer is layers[-1] else gain
        _initialize(layer, partial(nn.init.orthogonal_, gain=scale))
    return network


@torch.no_grad()
def xavier(network: nn.Module, *, gain: float = 1.0) -> None:
    """Initialises weights by Xavier uniform (Glorot & Bengio, 2010) and biases to zero."""
    for layer in _layers(network):
        _initialize(layer, partial(nn.init.xavier_uniform_, gain=gain))


@torch.no_grad()
def small_outputs(network: nn.Module, bound: float) -> None:
    """Initialises hidden biases to 0.1 and the output layer uniformly in [-bound, bound] (EDAC, ReBRAC)."""
    *hidden, last = _layers(network)
    for layer in hidden:
        nn.init.constant_(layer.bias, 0.1)
    for parameter in (last.weight, last.bias):
        nn.init.uniform_(parameter, -bound, bound)


def last_layer(network: nn.Module) -> nn.Module:
    layer: nn.Module = _layers(network)[-1]
    return layer


def _layers(network: nn.Module) -> list[Any]:
    """Layers in the order of `modules()`; modules of the user keep their own initialisation."""
    if isinstance(network, nn.Linear | EnsembleLinear | nn.Conv2d):
        return [network]
    if getattr(network, "keeps_initialization", False):
        return []
    return [layer for child in network.children() for layer in _layers(child)]


def _initialize(layer: Any, initialize: Callable[[Tensor], Any]) -> None:
    for weight in layer.weight if isinstance(layer, EnsembleLinear) else [layer.weight]:
        initialize(weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
