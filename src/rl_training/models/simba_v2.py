"""SimbaV2 networks (Lee et al., 2025, arXiv:2502.15280): weights and features of unit norm instead of layer norm."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from rl_training.models.products import with_full_precision
from rl_training.models.simba import EXPANSION
from rl_training.models.unit_norm import EPSILON, UnitLinear, unit_vectors

SHIFT = 3.0  # constant that is appended to the inputs, so that their l2 norm still matters


class Scaler(nn.Module):
    """x * s, with s = `initial` at first. Adam changes s by about learning rate * initial / scale in a step."""

    def __init__(self, width: int, initial: float, scale: float, copies: int | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((width,) if copies is None else (copies, 1, width), scale))
        self.multiplier = initial / scale

    def forward(self, x: Tensor) -> Tensor:
        return x * (self.weight * self.multiplier)


class SphereEmbedding(nn.Module):
    """unit_vectors(s * W unit_vectors([x, SHIFT]))."""

    def __init__(self, inputs: int, width: int, copies: int | None) -> None:
        super().__init__()
        scale = math.sqrt(2 / width)
        self.linear, self.scaler = UnitLinear(inputs + 1, width, copies), Scaler(width, scale, scale, copies)

    def forward(self, x: Tensor) -> Tensor:
        return unit_vectors(self.scaler(self.linear(unit_vectors(pad(x, (0, 1), value=SHIFT)))))


class SphereBlock(nn.Module):
    """Residual block with linear interpolation (LERP) between its input x and its output y of unit norm.

    y = unit_vectors(W2 activation(s * W1 x)), and the block returns unit_vectors(x + alpha * (y - x)).
    """

    def __init__(self, width: int, blocks: int, activation: type[nn.Module], copies: int | None) -> None:
        super().__init__()
        inner, scale = EXPANSION * width, math.sqrt(2 / (EXPANSION * width))
        self.expand, self.scaler = UnitLinear(width, inner, copies), Scaler(inner, scale, scale, copies)
        self.activation, self.contract = activation(), UnitLinear(inner, width, copies)
        self.alpha = Scaler(width, 1 / (blocks + 1), 1 / math.sqrt(width), copies)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.activation(self.scaler(self.expand(x))) + EPSILON  # never exactly 0
        y = unit_vectors(self.contract(hidden))
        return unit_vectors(x + self.alpha(y - x))


class SphereTrunk(nn.Sequential):
    """Embedding on the unit sphere, and the blocks."""

    keeps_initialization = True

    def __init__(
        self, inputs: int, widths: Sequence[int], activation: type[nn.Module], copies: int | None = None
    ) -> None:
        width = widths[0]
        blocks = (SphereBlock(width, len(widths), activation, copies) for _ in widths)
        super().__init__(SphereEmbedding(inputs, width, copies), *blocks)


class SphereOutput(nn.Module):
    """W2 (s * W1 x) + b, with s = 1 and b = 0 at first."""

    keeps_initialization = True

    def __init__(self, width: int, outputs: int, copies: int | None) -> None:
        super().__init__()
        self.hidden, self.scaler = UnitLinear(width, width, copies), Scaler(width, 1.0, 1.0, copies)
        self.last = UnitLinear(width, outputs, copies)
        self.bias = nn.Parameter(torch.zeros((outputs,) if copies is None else (copies, 1, outputs)))

    def forward(self, x: Tensor) -> Tensor:
        return with_full_precision(self.last, self.scaler(self.hidden(x))) + self.bias


class SphereOutputs(nn.Module):
    """Parts of the outputs, each with layers of its own: mean and log std of a policy."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([part(x) for part in self.parts], -1)


def sphere_output(width: int, outputs: int, copies: int | None = None, parts: int = 1) -> nn.Module:
    if parts == 1:
        return SphereOutput(width, outputs, copies)
    return SphereOutputs([SphereOutput(width, outputs // parts, copies) for _ in range(parts)])
