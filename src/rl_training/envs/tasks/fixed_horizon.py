"""CartPole with episodes of fixed length, so that survival alone earns no reward."""

from typing import Any

import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv


class FixedHorizonCartPole(CartPoleEnv):
    """CartPole-v1 without termination: every episode has 500 steps, and an upright step has reward 1.

    With non-negative learned rewards, longer episodes earn more whatever the policy does; equal lengths remove this
    bias. Every failure leads to the same absorbing state, so a discriminator cannot recognise individual falls.
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
