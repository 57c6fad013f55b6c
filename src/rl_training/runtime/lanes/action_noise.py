"""Exploration noise added to the actions of a policy: Gaussian or Ornstein-Uhlenbeck."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor


class ActionNoise(NamedTuple):
    """Gaussian noise with standard deviation `scale`, independent at each step if theta is 1.

    With theta < 1 it is Ornstein-Uhlenbeck noise, scaled to the same stationary standard deviation.
    """

    scale: float
    theta: float = 1.0

    @classmethod
    def build(cls, config: Any) -> ActionNoise | None:
        if getattr(config, "action_noise", "none") == "none":
            return None
        correlated = config.action_noise == "ornstein_uhlenbeck"
        return cls(config.action_noise_scale, config.action_noise_theta if correlated else 1.0)

    def next(self, noise: Tensor, generator: torch.Generator | None) -> Tensor:
        """Returns (1 - theta) * noise + sqrt(1 - (1 - theta)^2) * scale * N(0, 1)."""
        decay = 1 - self.theta
        normal = torch.randn(noise.shape, generator=generator, device=noise.device)
        return decay * noise + math.sqrt(1 - decay**2) * self.scale * normal
