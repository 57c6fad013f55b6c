"""From observations to feature vectors: vectors pass, pixels go through a small convolutional network."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from rl_training.types import EnvSpec

LEAST_PIXELS, LEAST_FOR_NATURE = 5, 36  # along the shorter side of a picture


class PixelEncoder(nn.Module):
    """Convolutions, with a dense layer of so many features or without (0); bytes become floats here."""

    def __init__(self, obs_shape: tuple[int, ...], conv: nn.Sequential, dense: int) -> None:
        super().__init__()
        self.conv = conv
        with torch.no_grad():
            flat = conv(torch.zeros(1, *obs_shape)).shape[1]
        self.features = dense or flat
        self.out = nn.Sequential(nn.Linear(flat, dense), nn.ReLU()) if dense else nn.Sequential()

    def forward(self, obs: Tensor) -> Tensor:
        return self.out(self.conv(obs.float() / 255))


class NatureCNN(PixelEncoder):
    """The convolutional stack of Mnih et al. (2015)."""

    def __init__(self, obs_shape: tuple[int, ...], *, dense: bool = True) -> None:
        conv = nn.Sequential(
            nn.Conv2d(obs_shape[0], 32, 8, 4), nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten(),
        )  # fmt: skip
        super().__init__(obs_shape, conv, 512 if dense else 0)


class GridCNN(PixelEncoder):
    """The one convolution of Young and Tian (2019), for worlds of a few cells such as MinAtar's."""

    def __init__(self, obs_shape: tuple[int, ...], *, dense: bool = True) -> None:
        conv = nn.Sequential(nn.Conv2d(obs_shape[0], 16, 3, 1), nn.ReLU(), nn.Flatten())
        super().__init__(obs_shape, conv, 128 if dense else 0)


def check_image(shape: tuple[int, ...]) -> None:
    """Refuse what is no picture, or has its channels last."""
    if len(shape) != 3 or min(shape[1:]) < LEAST_PIXELS:
        raise ValueError(
            f"pixels must be [channels, height, width] of at least {LEAST_PIXELS}x{LEAST_PIXELS}, got {shape}"
        )


def encoder_for(spec: EnvSpec, *, dense: bool = True) -> tuple[nn.Module, int]:
    """The encoder for these observations, and how many features it gives; `dense` ends that of pixels in a layer."""
    if spec.obs_dtype != "uint8" or len(spec.obs_shape) == 1:
        return Flat(), math.prod(spec.obs_shape)
    check_image(spec.obs_shape)
    network = NatureCNN if min(spec.obs_shape[1:]) >= LEAST_FOR_NATURE else GridCNN
    encoder = network(spec.obs_shape, dense=dense)
    return encoder, encoder.features


class Flat(nn.Module):
    def forward(self, obs: Tensor) -> Tensor:
        return obs.flatten(1).float()
