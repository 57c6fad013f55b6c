"""Small pixel environments that an agent can learn within minutes."""

from typing import Any

import gymnasium as gym
import numpy as np

SIDE, LIT = 16, 255  # image side in pixels, value of a bright pixel
Step = tuple[Any, float, bool, bool, dict[str, Any]]


class PixelEnv(gym.Env[Any, Any]):
    """Observations are one grey image, uint8 [1, 16, 16]."""

    observation_space: Any = gym.spaces.Box(0, LIT, (1, SIDE, SIDE), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.start_episode()
        return self.observe(), {}

    def observe(self) -> Any:
        return self.image()

    def start_episode(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} must implement start_episode()")

    def image(self) -> np.ndarray:
        raise NotImplementedError(f"{type(self).__name__} must implement image()")


class Catch(PixelEnv):
    """A ball falls nine rows in one of five columns; the paddle below moves left, stays or moves right.

    The reward of the last step is 1 if the ball is caught, else -1; all others are 0. Random actions earn -0.6.
    """

    action_space: Any = gym.spaces.Discrete(3)
    rows, columns = 10, 5

    def start_episode(self) -> None:
        self.row, self.paddle = 0, self.columns // 2
        self.ball = int(self.np_random.integers(self.columns))

    def image(self) -> np.ndarray:
        image = np.zeros((1, SIDE, SIDE), np.uint8)
        for row, column in ((self.row, self.ball), (self.rows - 1, self.paddle)):
            image[0, 3 + row, 3 * column : 3 * column + 3] = LIT  # a cell has 1x3 pixels
        return image

    def step(self, action: Any) -> Step:
        self.row += 1
        self.paddle = min(max(self.paddle + int(action) - 1, 0), self.columns - 1)
        landed = self.row == self.rows - 1
        reward = (1.0 if self.ball == self.paddle else -1.0) if landed else 0.0
        return self.observe(), reward, landed, False, {}


class CueMemory(PixelEnv):
    """Shows a cue on the left or right, then blank images, then asks for the side of the cue.

    The answer (0: left, 1: right) has reward 1 or -1 and ends the episode, whose last image shows the cue again.
    Earlier actions have no effect. The question image is independent of the cue, so a policy without memory can
    only guess.
    """

    action_space: Any = gym.spaces.Discrete(2)

    def __init__(self, blanks: int = 6) -> None:
        if type(blanks) is not int or blanks < 0:
            raise ValueError(f"blanks must be an integer of at least 0, got {blanks}")
        self.blanks = blanks

    def start_episode(self) -> None:
        self.time, self.cue = 0, int(self.np_random.integers(2))

    def image(self) -> np.ndarray:
        image = np.zeros((1, SIDE, SIDE), np.uint8)
        if self.time in (0, self.blanks + 2):
            image[0, 4:12, 8 * self.cue : 8 * self.cue + 8] = LIT
        elif self.time == self.blanks + 1:
            image[0, 12:, :] = LIT
        return image

    def step(self, action: Any) -> Step:
        is_question = self.time == self.blanks + 1
        reward = (1.0 if int(action) == self.cue else -1.0) if is_question else 0.0
        self.time += 1
        return self.observe(), reward, is_question, False, {}


class SignedSide(PixelEnv):
    """An image with one bright side and a sign: the right answer is the bright side if it is 1, else the other one.

    The answer (0: left, 1: right) has reward 1 or -1 and ends the episode. Neither part alone is sufficient.
    """

    observation_space: Any = gym.spaces.Dict(
        side=PixelEnv.observation_space, sign=gym.spaces.Box(-1, 1, (1,), np.float32)
    )
    action_space: Any = gym.spaces.Discrete(2)

    def start_episode(self) -> None:
        self.side, self.sign = int(self.np_random.integers(2)), 1 - 2 * int(self.np_random.integers(2))

    def image(self) -> np.ndarray:
        image = np.zeros((1, SIDE, SIDE), np.uint8)
        image[0, 4:12, 8 * self.side : 8 * self.side + 8] = LIT
        return image

    def observe(self) -> Any:
        return {"side": self.image(), "sign": np.array([self.sign], np.float32)}

    def step(self, action: Any) -> Step:
        correct = (int(action) == self.side) == (self.sign > 0)
        return self.observe(), 1.0 if correct else -1.0, True, False, {}
