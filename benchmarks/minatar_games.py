"""MinAtar games with channel-first images: `minatar_games:MinAtar/Breakout-v0` where this folder is on the path.

As in Young and Tian (2019), plus a step limit: six actions in every game, sticky actions with probability 0.1, and
difficulty ramping. The environment option `minimal` keeps only the actions that a game uses.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from minatar import Environment

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
MAX_STEPS = 10_000  # a perfect policy would never end an episode


class MinAtarGame(gym.Env[np.ndarray, np.int64]):
    def __init__(self, name: str, *, minimal: bool = False, **options: Any) -> None:
        self._game = Environment(name, **options)
        height, width, channels = self._game.state_shape()
        self._actions = self._game.minimal_action_set() if minimal else range(self._game.num_actions())
        self.action_space = gym.spaces.Discrete(len(self._actions))
        self.observation_space = gym.spaces.Box(0, 255, (channels, height, width), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._game.seed(seed % 2**32)
        self._game.last_action = 0  # a sticky action must not come from the previous game
        self._game.reset()
        return self._image(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward, over = self._game.act(self._actions[int(action)])
        return self._image(), float(reward), bool(over), False, {}

    def _image(self) -> np.ndarray:
        return 255 * self._game.state().transpose(2, 0, 1).astype(np.uint8)


for game in GAMES:
    title = game.title().replace("_", "")
    gym.register(f"MinAtar/{title}-v0", MinAtarGame, kwargs={"name": game}, max_episode_steps=MAX_STEPS)
