"""From observations to feature vectors: vectors pass, pixels go through a small convolutional network."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from rl_training.types import EnvSpec


class NatureCNN(nn.Module):
    """The convolutional stack of Mnih et al. (2015), with its dense layer or without; bytes become floats here."""

    def __init__(self, obs_shape: tuple[int, ...], *, dense: bool = True) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(obs_shape[0], 32, 8, 4), nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten(),
        )  # fmt: skip
        with torch.no_grad():
            flat = self.conv(torch.zeros(1, *obs_shape)).shape[1]
        self.features = 512 if dense else flat
        self.out = nn.Sequential(nn.Linear(flat, self.features), nn.ReLU()) if dense else nn.Sequential()

    def forward(self, obs: Tensor) -> Tensor:
        return self.out(self.conv(obs.float() / 255))


def encoder_for(spec: EnvSpec, *, dense: bool = True) -> tuple[nn.Module, int]:
    """The encoder for these observations, and how many features it gives; `dense` ends that of pixels in 512."""
    if spec.obs_dtype != "uint8" or len(spec.obs_shape) == 1:
        return Flat(), math.prod(spec.obs_shape)
    if len(spec.obs_shape) != 3 or min(spec.obs_shape[1:]) < 36:
        raise ValueError(f"pixels must be [channels, height, width] of at least 36x36, got {spec.obs_shape}")
    encoder = NatureCNN(spec.obs_shape, dense=dense)
    return encoder, encoder.features


class Flat(nn.Module):
    def forward(self, obs: Tensor) -> Tensor:
        return obs.flatten(1).float()
