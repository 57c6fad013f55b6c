"""CartPole in which every episode lasts equally long, so that staying alive tells nothing of how well one does."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv


class FixedHorizonCartPole(CartPoleEnv):
    """CartPole-v1 that no failure ends: what is down stays down and pays nothing, until the time is up.

    With rewards that are never negative, as most learned ones are, longer episodes pay more whatever is done in them.
    Here all are 500 steps long, and an upright step pays 1. Every failure, of the pole or of the cart, ends in one and
    the same state: were each left where it happened, whoever has seen an expert fall could tell all other falls by it.
    """

    fallen = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.fallen = False
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.fallen:
            _, _, self.fallen, _, _ = super().step(action)
        if self.fallen:
            self.state = np.array([0, 0, 2 * self.theta_threshold_radians, 0])
        return np.array(self.state, np.float32), float(not self.fallen), False, False, {}
