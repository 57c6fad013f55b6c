"""Layers of DreamerV3: truncated normal initialisation, RMS norm and SiLU."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import torch
from torch import Tensor, nn

from rl_training.models.mlp import EnsembleLinear

EPS = 1e-4
Layer = TypeVar("Layer", bound=nn.Linear | EnsembleLinear | nn.Conv2d | nn.ConvTranspose2d)
TRUNCATION = 1.1368  # std of a normal whose truncation at two std has a std of 1


class RMSNorm(nn.RMSNorm):
    """RMS norm in float32."""

    def __init__(self, width: int) -> None:
        super().__init__(width, eps=EPS)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.float())


class ChannelRMSNorm(RMSNorm):
    """RMS norm over the channels of images [rows, channels, height, width]."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


@torch.no_grad()
def initialized(layer: Layer, fan_in: int, scale: float = 1.0) -> Layer:
    """Initialises weights by a truncated normal with std scale / sqrt(fan_in) and biases to zero."""
    nn.init.trunc_normal_(layer.weight, a=-2, b=2)
    layer.weight.mul_(scale * TRUNCATION / math.sqrt(fan_in))
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def linear(fan_in: int, fan_out: int, *, scale: float = 1.0, bias: bool = True, inputs: int | None = None) -> nn.Linear:
    """Linear layer with zero bias; `scale=0` makes the initial outputs exactly 0."""
    # `inputs` is the fan-in of the whole layer if this is one of several parts whose outputs are added.
    return initialized(nn.Linear(fan_in, fan_out, bias=bias), inputs or fan_in, scale)


def block_linear(blocks: int, fan_in: int, fan_out: int, *, inputs: int | None = None) -> EnsembleLinear:
    """One layer per block: [blocks, rows, fan_in] -> [blocks, rows, fan_out]; scaled by the fan-in of all blocks."""
    return initialized(EnsembleLinear(blocks, fan_in, fan_out), inputs or blocks * fan_in)


def conv(channels_in: int, channels_out: int) -> nn.Conv2d:
    """5x5 convolution that keeps height and width."""
    return initialized(nn.Conv2d(channels_in, channels_out, 5, padding="same"), channels_in * 5 * 5)


def halving_conv(channels_in: int, channels_out: int) -> nn.Conv2d:
    return initialized(nn.Conv2d(channels_in, channels_out, 4, stride=2, padding=1), channels_in * 4 * 4)


def doubling_conv(channels_in: int, channels_out: int) -> nn.ConvTranspose2d:
    layer = nn.ConvTranspose2d(channels_in, channels_out, 4, stride=2, padding=1)
    return initialized(layer, channels_in * 2 * 2)  # each output pixel has 2x2 inputs


def dense(fan_in: int, fan_out: int, activation: type[nn.Module] = nn.SiLU) -> nn.Sequential:
    return nn.Sequential(linear(fan_in, fan_out), RMSNorm(fan_out), activation())


def normed_mlp(sizes: Sequence[int], *, scale: float = 1.0, activation: type[nn.Module] = nn.SiLU) -> nn.Sequential:
    """Dense layers of these sizes, then a linear layer with this initial scale."""
    hidden = [dense(*pair, activation) for pair in pairwise(sizes[:-1])]
    return nn.Sequential(*hidden, linear(*sizes[-2:], scale=scale))
