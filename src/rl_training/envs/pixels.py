"""Small worlds seen as pictures, in which an agent that learns from pixels shows within minutes whether it does."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

SIDE, LIT = 16, 255  # pixels along each side of a picture, and what a bright one holds
Step = tuple[Any, float, bool, bool, dict[str, Any]]


class PixelWorld(gym.Env[Any, Any]):
    """Observations are one grey picture, uint8 [1, 16, 16]."""

    observation_space: Any = gym.spaces.Box(0, LIT, (1, SIDE, SIDE), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.begin()
        return self.seen(), {}

    def seen(self) -> Any:
        return self.picture()

    def begin(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} must say how an episode begins")

    def picture(self) -> np.ndarray:
        raise NotImplementedError(f"{type(self).__name__} must say what is seen")


class Catch(PixelWorld):
    """A ball falls nine rows down a board of five columns; a paddle below moves left, stays or moves right.

    The last step pays 1 if the ball is caught and -1 if not, and none before it pays. Random actions earn -0.6.
    """

    action_space: Any = gym.spaces.Discrete(3)
    rows, columns = 10, 5

    def begin(self) -> None:
        self.row, self.paddle = 0, self.columns // 2
        self.ball = int(self.np_random.integers(self.columns))

    def picture(self) -> np.ndarray:
        seen = np.zeros((1, SIDE, SIDE), np.uint8)
        for row, column in ((self.row, self.ball), (self.rows - 1, self.paddle)):
            seen[0, 3 + row, 3 * column : 3 * column + 3] = LIT  # a cell is 1x3 pixels, and the board in the middle
        return seen

    def step(self, action: Any) -> Step:
        self.row += 1
        self.paddle = min(max(self.paddle + int(action) - 1, 0), self.columns - 1)
        down = self.row == self.rows - 1
        reward = (1.0 if self.ball == self.paddle else -1.0) if down else 0.0
        return self.seen(), reward, down, False, {}


class CueMemory(PixelWorld):
    """A cue on the left or on the right, blank pictures, then a question: on which side was it?

    The answer, action 0 for left and 1 for right, pays 1 or -1 and ends the episode, and the cue is shown again; what
    is done before it has no effect. The question looks the same whatever the cue was, so that without a memory one
    can only guess.
    """

    action_space: Any = gym.spaces.Discrete(2)

    def __init__(self, blanks: int = 6) -> None:
        if type(blanks) is not int or blanks < 0:
            raise ValueError(f"blanks must be an integer of at least 0, got {blanks}")
        self.blanks = blanks

    def begin(self) -> None:
        self.time, self.cue = 0, int(self.np_random.integers(2))

    def picture(self) -> np.ndarray:
        seen = np.zeros((1, SIDE, SIDE), np.uint8)
        if self.time in (0, self.blanks + 2):
            seen[0, 4:12, 8 * self.cue : 8 * self.cue + 8] = LIT
        elif self.time == self.blanks + 1:
            seen[0, 12:, :] = LIT
        return seen

    def step(self, action: Any) -> Step:
        asked = self.time == self.blanks + 1
        reward = (1.0 if int(action) == self.cue else -1.0) if asked else 0.0
        self.time += 1
        return self.seen(), reward, asked, False, {}


class SignedSide(PixelWorld):
    """A picture with a bright side, and a vector with a sign: 1 for the side, or if it is -1 for the other one.

    The answer, action 0 for left and 1 for right, pays 1 or -1 and ends the episode. Who sees the picture alone or the
    sign alone can only guess.
    """

    observation_space: Any = gym.spaces.Dict(
        side=PixelWorld.observation_space, sign=gym.spaces.Box(-1, 1, (1,), np.float32)
    )
    action_space: Any = gym.spaces.Discrete(2)

    def begin(self) -> None:
        self.side, self.sign = int(self.np_random.integers(2)), 1 - 2 * int(self.np_random.integers(2))

    def picture(self) -> np.ndarray:
        seen = np.zeros((1, SIDE, SIDE), np.uint8)
        seen[0, 4:12, 8 * self.side : 8 * self.side + 8] = LIT
        return seen

    def seen(self) -> Any:
        return {"side": self.picture(), "sign": np.array([self.sign], np.float32)}

    def step(self, action: Any) -> Step:
        right = (int(action) == self.side) == (self.sign > 0)
        return self.seen(), 1.0 if right else -1.0, True, False, {}
