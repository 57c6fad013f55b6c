"""Noisy layers (Fortunato et al., 2018, arXiv:1706.10295) and MLPs of noisy or plain layers."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

SIGMA_INIT = 0.5  # initial noise scale times sqrt(fan_in)


class NoisyLinear(nn.Module):
    """Linear layer with factorised Gaussian noise on the weights: W = mean + scale * f(e_out) f(e_in)^T.

    The noise is [inputs + outputs] for all rows, or [rows, inputs + outputs]. Without noise the means are used.
    """

    def __init__(self, fan_in: int, fan_out: int) -> None:
        super().__init__()
        self.sizes = [fan_in, fan_out]
        self.mean = nn.Linear(fan_in, fan_out)  # PyTorch's default initialisation is that of the paper
        scale = SIGMA_INIT / math.sqrt(fan_in)
        self.weight_scale = nn.Parameter(torch.full((fan_out, fan_in), scale))
        self.bias_scale = nn.Parameter(torch.full((fan_out,), scale))

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        if noise is None:
            return self.mean(x)
        into, out = (noise.sign() * noise.abs().sqrt()).split(self.sizes, -1)
        if noise.dim() > 1:  # avoids one weight matrix per row
            shape = (len(x), *[1] * (x.dim() - 2), -1)
            return self.mean(x) + out.view(shape) * linear(x * into.view(shape), self.weight_scale, self.bias_scale)
        weight = self.mean.weight + self.weight_scale * torch.outer(out, into)
        return linear(x, weight, self.mean.bias + self.bias_scale * out)


class Stack(nn.Module):
    """Linear or noisy layers of these sizes with ReLU between them."""

    def __init__(self, sizes: Sequence[int], *, noisy: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList((NoisyLinear if noisy else nn.Linear)(*pair) for pair in pairwise(sizes))
        self.noise_sizes = [sum(pair) for pair in pairwise(sizes)] if noisy else []

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        parts = () if noise is None else noise.split(self.noise_sizes, -1)
        for index, layer in enumerate(self.layers):
            x = x.relu() if index else x
            x = layer(x, parts[index]) if parts else layer(x)
        return x
