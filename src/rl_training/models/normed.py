"""Layers of DreamerV3: truncated normal initialisation, RMS norm or layer norm, and SiLU."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

from rl_training.models.mlp import EnsembleLinear

EPS = {"2023": 1e-3, "2024": 1e-4}
Release = Literal["2023", "2024"]
Layer = TypeVar("Layer", bound=nn.Linear | EnsembleLinear | nn.Conv2d | nn.ConvTranspose2d)
TRUNCATION = 1.1368  # std of a normal whose truncation at two std has a std of 1


class RMSNorm(nn.RMSNorm):
    """RMS norm in float32."""

    def __init__(self, width: int) -> None:
        super().__init__(width, eps=EPS["2024"])

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.float())


class ChannelRMSNorm(RMSNorm):
    """RMS norm over the channels of images [rows, channels, height, width]."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


class LayerNorm(nn.LayerNorm):
    """Layer norm in float32."""

    def __init__(self, width: int) -> None:
        super().__init__(width, eps=EPS["2023"])

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.float())


class ChannelLayerNorm(LayerNorm):
    """Layer norm over the channels of images [rows, channels, height, width]."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


@torch.no_grad()
def initialized(layer: Layer, fan: float, scale: float = 1.0) -> Layer:
    """Initialises weights by a truncated normal with std scale / sqrt(fan) and biases to zero."""
    nn.init.trunc_normal_(layer.weight, a=-2, b=2)
    layer.weight.mul_(scale * TRUNCATION / math.sqrt(fan))
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


@dataclass(frozen=True)
class LayerFactory:
    """Creates the layers of one release of DreamerV3.

    - 2024: RMS norm; weights are scaled by the number of inputs.
    - 2023: layer norm, and no bias in the layer before it (5x5 convolutions keep theirs); weights are scaled by the
      mean of inputs and outputs.
    """

    release: Release = "2024"

    @property
    def is_2023(self) -> bool:
        return self.release == "2023"

    @property
    def bias(self) -> bool:
        """Whether layers before a norm have a bias."""
        return not self.is_2023

    def norm(self, width: int) -> nn.Module:
        return LayerNorm(width) if self.is_2023 else RMSNorm(width)

    def channel_norm(self, channels: int) -> nn.Module:
        return ChannelLayerNorm(channels) if self.is_2023 else ChannelRMSNorm(channels)

    def linear(
        self, fan_in: int, fan_out: int, *, scale: float = 1.0, bias: bool = True, inputs: int | None = None
    ) -> nn.Linear:
        """Linear layer with zero bias; `scale=0` makes the initial outputs exactly 0."""
        # `inputs` is the fan-in of the whole layer if this is one of several parts whose outputs are added.
        return initialized(nn.Linear(fan_in, fan_out, bias=bias), self.fan(inputs or fan_in, fan_out), scale)

    def conv(self, channels_in: int, channels_out: int) -> nn.Conv2d:
        """5x5 convolution that keeps height and width."""
        layer = nn.Conv2d(channels_in, channels_out, 5, padding="same")
        return initialized(layer, self.fan(channels_in * 5 * 5, channels_out * 5 * 5))

    def halving_conv(self, channels_in: int, channels_out: int) -> nn.Conv2d:
        layer = nn.Conv2d(channels_in, channels_out, 4, stride=2, padding=1, bias=self.bias)
        return initialized(layer, self.fan(channels_in * 4 * 4, channels_out * 4 * 4))

    def doubling_conv(self, channels_in: int, channels_out: int, *, bias: bool = True) -> nn.ConvTranspose2d:
        layer = nn.ConvTranspose2d(channels_in, channels_out, 4, stride=2, padding=1, bias=bias)
        # Each output pixel has 2x2 inputs. The 2023 release counts all 4x4 weights.
        fan = self.fan(channels_in * 4 * 4, channels_out * 4 * 4) if self.is_2023 else channels_in * 2 * 2
        return initialized(layer, fan)

    def fan(self, inputs: int, outputs: int) -> float:
        return (inputs + outputs) / 2 if self.is_2023 else inputs

    def dense(self, fan_in: int, fan_out: int, activation: type[nn.Module] = nn.SiLU) -> nn.Sequential:
        return nn.Sequential(self.linear(fan_in, fan_out, bias=self.bias), self.norm(fan_out), activation())

    def mlp(self, sizes: Sequence[int], *, scale: float = 1.0, activation: type[nn.Module] = nn.SiLU) -> nn.Sequential:
        """Dense layers of these sizes, then a linear layer with this initial scale."""
        hidden = [self.dense(*pair, activation) for pair in pairwise(sizes[:-1])]
        return nn.Sequential(*hidden, self.linear(*sizes[-2:], scale=scale))


LAYERS_2024 = LayerFactory()


def block_linear(blocks: int, fan_in: int, fan_out: int, *, inputs: int | None = None) -> EnsembleLinear:
    """One layer per block: [blocks, rows, fan_in] -> [blocks, rows, fan_out]; scaled by the fan-in of all blocks."""
    return initialized(EnsembleLinear(blocks, fan_in, fan_out), inputs or blocks * fan_in)
