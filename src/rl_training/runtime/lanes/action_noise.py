"""Noise on actions, by which a policy that has none of its own explores."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor


class ActionNoise(NamedTuple):
    """Normal noise, drawn anew at each step; or, where steps forget only a share of it, one that drifts.

    Uhlenbeck and Ornstein (1930), scaled so that its deviation grows to `scale` whatever it forgets.
    """

    scale: float
    forgets: float = 1.0

    @classmethod
    def build(cls, config: Any) -> ActionNoise | None:
        """What the options of a learner ask for."""
        if getattr(config, "action_noise", "none") == "none":
            return None
        drifts = config.action_noise == "ornstein_uhlenbeck"
        return cls(config.action_noise_scale, config.action_noise_theta if drifts else 1.0)

    def follow(self, noise: Tensor, generator: torch.Generator | None) -> Tensor:
        """The noise of the next step."""
        kept = 1 - self.forgets
        fresh = torch.randn(noise.shape, generator=generator, device=noise.device)
        return kept * noise + math.sqrt(1 - kept**2) * self.scale * fresh
