"""Classic control without velocities: the policy needs a memory of earlier observations."""

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv, PendulumEnv

CARTPOLE_POSITIONS, PENDULUM_ANGLE = [0, 2], [0, 1]  # entries of an observation that remain


class CartPoleNoVelocity(CartPoleEnv):
    """CartPole-v1 with the position of the cart and the angle of the pole as its only observations."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        whole: Any = self.observation_space
        self.observation_space = spaces.Box(whole.low[CARTPOLE_POSITIONS], whole.high[CARTPOLE_POSITIONS])

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = super().reset(**options)
        return obs[CARTPOLE_POSITIONS], info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs[CARTPOLE_POSITIONS], float(reward), terminated, truncated, info


class PendulumNoVelocity(PendulumEnv):
    """Pendulum-v1 with cosine and sine of the angle as its only observations."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.observation_space = spaces.Box(-1.0, 1.0, (len(PENDULUM_ANGLE),), np.float32)

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = super().reset(**options)
        return obs[PENDULUM_ANGLE], info

    def step(self, u: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(u)
        return obs[PENDULUM_ANGLE], float(reward), terminated, truncated, info
