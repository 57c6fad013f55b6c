"""A lock with many actions, of which two are valid in each state."""

from typing import Any

import gymnasium as gym
import numpy as np


class CombinationLock(gym.Env[Any, Any]):
    """Opens after the right action in each of `length` states, with a reward of 1.

    Two actions are valid in each state: one leads to the next state, the other back to the first. Invalid actions
    change nothing. `info["action_mask"]` marks the valid ones; `masks=False` leaves it out. The combination depends on
    `code_seed` alone.
    """

    def __init__(self, length: int = 8, num_actions: int = 64, *, masks: bool = True, code_seed: int = 0) -> None:
        self.observation_space, self.action_space = gym.spaces.Discrete(length), gym.spaces.Discrete(num_actions)
        self.num_actions, self.length, self.masks = num_actions, length, masks
        self.state, self.invalid_actions = 0, 0
        rng = np.random.default_rng(code_seed)
        self._valid = np.stack([rng.choice(num_actions, 2, replace=False) for _ in range(length)])  # right, wrong

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = 0
        return self.state, self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        right, wrong = self._valid[self.state]
        self.invalid_actions += action not in (right, wrong)
        opens = bool(action == right and self.state == self.length - 1)
        if action == right and not opens:
            self.state += 1
        elif action == wrong:
            self.state = 0
        return self.state, float(opens), opens, False, self._info()

    def _info(self) -> dict[str, Any]:
        if not self.masks:
            return {}
        mask = np.zeros(self.num_actions, np.int8)
        mask[self._valid[self.state]] = 1
        return {"action_mask": mask}
