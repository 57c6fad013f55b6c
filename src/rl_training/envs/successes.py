"""Records whether episodes were successful."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.envs.pools.pool import EnvPool

KEYS = ("is_success", "success")  # of `info`


class Successes(gym.Wrapper[Any, Any, Any, Any]):
    """Appends `is_success` or `success` of `info` to `found` at the end of each episode; None if it has neither."""

    def __init__(self, env: gym.Env[Any, Any], found: list[bool | None]) -> None:
        super().__init__(env)
        self.found = found

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            known = info if isinstance(info, Mapping) else {}
            reported = (known[key] for key in KEYS if isinstance(known.get(key), bool | int | float | np.generic))
            self.found.append(next(map(bool, reported), None))
        return obs, reward, terminated, truncated, info


def record_successes(pool: EnvPool) -> list[list[bool | None]]:
    """Returns lists, one per environment, that get an entry with each episode; call it before the first reset."""
    found: list[list[bool | None]] = [[] for _ in range(pool.num_envs)]
    pool.wrap(lambda number, env: Successes(env, found[number]))
    return found
