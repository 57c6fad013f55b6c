"""Layers that keep their scale at any depth: truncated normal weights, RMS norm and SiLU, as in DreamerV3."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from rl_training.models.mlp import EnsembleLinear

EPS = 1e-4
CUT = 1.1368  # the deviation of a normal before its tails beyond two of them are cut, if 1 is to be left


class RMSNorm(nn.RMSNorm):
    """In full precision, whatever comes in."""

    def __init__(self, width: int) -> None:
        super().__init__(width, eps=EPS)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.float())


class ChannelNorm(RMSNorm):
    """Over the channels of pictures [rows, channels, height, width]."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


@torch.no_grad()
def truncated_normal(weight: Tensor, fan_in: int, scale: float = 1.0) -> None:
    nn.init.trunc_normal_(weight, a=-2, b=2)
    weight.mul_(scale * CUT / math.sqrt(fan_in))


def linear(fan_in: int, fan_out: int, *, scale: float = 1.0, bias: bool = True, inputs: int | None = None) -> nn.Linear:
    """A layer with a zero bias; a scale of 0 makes every output exactly 0 in the beginning.

    `inputs` are those of the whole layer, where this one is a part whose output is added to another's.
    """
    layer = nn.Linear(fan_in, fan_out, bias=bias)
    truncated_normal(layer.weight, inputs or fan_in, scale)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def block_linear(blocks: int, fan_in: int, fan_out: int, *, inputs: int | None = None) -> EnsembleLinear:
    """A layer for each block: [blocks, rows, fan_in] -> [blocks, rows, fan_out]; as in DreamerV3, its weights begin as
    small as if every output saw the inputs of all blocks."""
    layer = EnsembleLinear(blocks, fan_in, fan_out)
    truncated_normal(layer.weight, inputs or blocks * fan_in)
    nn.init.zeros_(layer.bias)
    return layer


def conv(channels_in: int, channels_out: int) -> nn.Conv2d:
    """A convolution that keeps height and width."""
    layer = nn.Conv2d(channels_in, channels_out, 5, padding="same")
    _begin(layer, channels_in * 5 * 5)
    return layer


def halving_conv(channels_in: int, channels_out: int) -> nn.Conv2d:
    layer = nn.Conv2d(channels_in, channels_out, 4, stride=2, padding=1)
    _begin(layer, channels_in * 4 * 4)
    return layer


def doubling_conv(channels_in: int, channels_out: int) -> nn.ConvTranspose2d:
    """The way back: a pixel sees two by two of the smaller picture."""
    layer = nn.ConvTranspose2d(channels_in, channels_out, 4, stride=2, padding=1)
    _begin(layer, channels_in * 2 * 2)
    return layer


def _begin(layer: nn.Conv2d | nn.ConvTranspose2d, fan_in: int) -> None:
    truncated_normal(layer.weight, fan_in)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def dense(fan_in: int, fan_out: int) -> nn.Sequential:
    return nn.Sequential(linear(fan_in, fan_out), RMSNorm(fan_out), nn.SiLU())


def normed_mlp(sizes: Sequence[int], *, scale: float = 1.0) -> nn.Sequential:
    """Dense layers of these sizes, the last one plain and of this scale."""
    hidden = [dense(*pair) for pair in pairwise(sizes[:-1])]
    return nn.Sequential(*hidden, linear(*sizes[-2:], scale=scale))
