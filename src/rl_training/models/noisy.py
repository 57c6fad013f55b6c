"""Layers that explore by noise in their weights (Fortunato et al., 2018), and a stack of them or of plain ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

FIRST_SCALE = 0.5  # of the noise, over the square root of a layer's inputs


class NoisyLinear(nn.Module):
    """A linear layer whose weights are learned means plus learned scales times noise, one number an input and output.

    The noise [inputs + outputs] is that of all rows, or [rows, inputs + outputs] of each its own. Without noise it is
    its means alone.
    """

    def __init__(self, fan_in: int, fan_out: int) -> None:
        super().__init__()
        self.sizes = [fan_in, fan_out]
        self.mean = nn.Linear(fan_in, fan_out)  # torch draws it uniformly within 1 / sqrt(fan_in), as the paper does
        scale = FIRST_SCALE / math.sqrt(fan_in)
        self.weight_scale = nn.Parameter(torch.full((fan_out, fan_in), scale))
        self.bias_scale = nn.Parameter(torch.full((fan_out,), scale))

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        if noise is None:
            return self.mean(x)
        into, out = (noise.sign() * noise.abs().sqrt()).split(self.sizes, -1)
        if noise.dim() > 1:  # the same without a weight for every row
            shape = (len(x), *[1] * (x.dim() - 2), -1)
            return self.mean(x) + out.view(shape) * linear(x * into.view(shape), self.weight_scale, self.bias_scale)
        weight = self.mean.weight + self.weight_scale * torch.outer(out, into)
        return linear(x, weight, self.mean.bias + self.bias_scale * out)


class Stack(nn.Module):
    """Linear layers of these sizes with ReLU between them, all plain or all noisy."""

    def __init__(self, sizes: Sequence[int], *, noisy: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList((NoisyLinear if noisy else nn.Linear)(*pair) for pair in pairwise(sizes))
        self.noise_sizes = [sum(pair) for pair in pairwise(sizes)] if noisy else []

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        parts = () if noise is None else noise.split(self.noise_sizes, -1)
        for number, layer in enumerate(self.layers):
            x = x.relu() if number else x
            x = layer(x, parts[number]) if parts else layer(x)
        return x
