"""Environments whose `step` returns one wrong value; a comment marks the line that the report must name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

if TYPE_CHECKING:
    from tests.envs.broken_envs import Good
else:
    from broken_envs import Good


class StepNone(Good):
    def step(self, action: Any) -> Any:  # <- StepNone: `step` returned nothing; Gymnasium expects 5 values
        super().step(action)


class Late(Good):
    """Returns one wrong value, such as ("reward", "1.0"), after the steps that are checked in full."""

    def __init__(self, position: int = 1, value: Any = 1.0) -> None:
        super().__init__()
        self.position, self.value = position, value

    def step(self, action: Any) -> Any:
        outcome = list(super().step(action))
        if self.steps == 12:
            outcome[self.position] = self.value
        return tuple(outcome)


class Outside(Good):
    def step(self, action: Any) -> Any:  # <- Outside: observation 3 at index [0], outside its space (-1 to 1)
        return np.full(2, 3, np.float32), *super().step(action)[1:]


class OtherDtype(Good):
    def step(self, action: Any) -> Any:  # <- OtherDtype: float64 observations, but their space is float32
        return np.zeros(2), *super().step(action)[1:]


class OtherShape(Good):
    def step(self, action: Any) -> Any:  # <- OtherShape: an observation of shape (3,), but its space has (2,)
        return np.zeros(3, np.float32), *super().step(action)[1:]


class ListObs(Good):
    def step(self, action: Any) -> Any:  # <- ListObs: returned a list; return a NumPy array
        return [0.0, 0.0], *super().step(action)[1:]


class MissingKey(Good):
    def __init__(self) -> None:
        super().__init__()
        box = spaces.Box(-1, 1, (2,), np.float32)
        self.observation_space = spaces.Dict({"eye": box, "arm": box})

    def observe(self) -> Any:
        return {"eye": super().observe(), "arm": super().observe()}

    def step(self, action: Any) -> Any:  # <- MissingKey: without the key 'arm', which is in observation_space
        obs, *rest = super().step(action)
        return {"eye": obs["eye"]}, *rest


class NanObs(Good):
    def step(self, action: Any) -> Any:  # <- NanObs: NaN or infinite observation: nan at index [1]
        return np.array([0, np.nan], np.float32), *super().step(action)[1:]


class NoneReward(Good):
    def step(self, action: Any) -> Any:  # <- NoneReward: None as reward, not a number: return a float
        obs, _, *rest = super().step(action)
        return obs, None, *rest


class ArrayReward(Good):
    def step(self, action: Any) -> Any:  # <- ArrayReward: an array of shape (1,) as reward, not a number
        obs, _, *rest = super().step(action)
        return obs, np.ones(1), *rest


class TextReward(Good):
    def step(self, action: Any) -> Any:  # <- TextReward: a str as reward, not a number
        obs, _, *rest = super().step(action)
        return obs, "1", *rest


class NanReward(Good):
    def step(self, action: Any) -> Any:  # <- NanReward: a NaN or infinite reward: nan
        obs, _, *rest = super().step(action)
        return obs, float("nan"), *rest


class IntFlag(Good):
    def step(self, action: Any) -> Any:  # <- IntFlag: an int as terminated; Gymnasium expects True or False
        obs, reward, terminated, *rest = super().step(action)
        return obs, reward, int(terminated), *rest


class SwappedFlag(Good):
    def step(self, action: Any) -> Any:  # <- SwappedFlag: a float as terminated; Gymnasium expects True or False
        obs, reward, terminated, *rest = super().step(action)
        return obs, terminated, float(reward), *rest


class SwappedInt(Good):
    def step(self, action: Any) -> Any:  # <- SwappedInt: an int as terminated; Gymnasium expects True or False
        obs, _, terminated, *rest = super().step(action)
        return obs, terminated, 1, *rest


class NoneFlag(Good):
    def step(self, action: Any) -> Any:  # <- NoneFlag: None as truncated; Gymnasium expects True or False
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, None, info


class NeverEnds(Good):
    def step(self, action: Any) -> Any:  # <- NeverEnds: no episode ended in 1,000 steps
        return self.observe(), 0.0, False, False, {}
