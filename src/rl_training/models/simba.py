"""SimBa networks (Lee et al., 2024, arXiv:2410.09754): residual feed-forward blocks with layer norm."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from rl_training.models.mlp import EnsembleLinear, new_layer_norm, new_linear, orthogonal
from rl_training.models.normed import initialized
from rl_training.models.products import Linear

HIDDEN_SIZES, CRITIC_HIDDEN_SIZES = (128,), (512, 512)  # one width for each block
EXPANSION = 4  # inner width of a block, as a multiple of its width


class SimbaBlock(nn.Module):
    """Residual block: x + contract(activation(expand(norm(x))))."""

    def __init__(self, width: int, activation: type[nn.Module], copies: int | None = None) -> None:
        super().__init__()
        self.width = width
        self.norm = new_layer_norm(width, copies)
        inner = EXPANSION * width
        self.body = nn.Sequential(he_linear(width, inner, copies), activation(), he_linear(inner, width, copies))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(self.norm(x))


class SimbaTrunk(nn.Module):
    """Linear layer to the width of the blocks, the blocks, and a layer norm."""

    keeps_initialization = True

    def __init__(
        self, inputs: int, widths: Sequence[int], activation: type[nn.Module], copies: int | None = None
    ) -> None:
        super().__init__()
        width = widths[0]
        self.embed = orthogonal_linear(inputs, width, copies)
        self.blocks = nn.Sequential(*(SimbaBlock(width, activation, copies) for _ in widths))
        self.norm = new_layer_norm(width, copies)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.blocks(self.embed(x)))


def he_linear(fan_in: int, fan_out: int, copies: int | None) -> Linear | EnsembleLinear:
    """Linear layer with weights from a truncated normal with std sqrt(2 / fan_in) (He et al., 2015), and zero bias."""
    return initialized(new_linear(fan_in, fan_out, copies), fan_in, math.sqrt(2))


def simba_output(width: int, outputs: int, copies: int | None = None, parts: int = 1) -> Linear | EnsembleLinear:
    return orthogonal_linear(width, outputs, copies)  # one layer for all parts


def orthogonal_linear(fan_in: int, fan_out: int, copies: int | None) -> Linear | EnsembleLinear:
    """Linear layer with orthogonal weights and zero bias."""
    return orthogonal(new_linear(fan_in, fan_out, copies), gain=1.0)
