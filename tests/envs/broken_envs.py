"""Environments with one mistake each; a comment marks the line that the report must name. More in broken_steps.py."""

from __future__ import annotations

import random
import time
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit


class Good(gym.Env[Any, Any]):
    """A correct environment; the others change one thing."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.steps = 0

    def observe(self) -> Any:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.observe(), 1.0, self.steps >= 20, False, {}


class OldReset(Good):
    def reset(self) -> Any:  # type: ignore[override]  # <- OldReset: `reset` does not take seed and options
        return super().reset()[0]


class ResetObsOnly(Good):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # <- ResetObsOnly: only the observation
        return super().reset(seed=seed)[0]


class OldStep(Good):
    def step(self, action: Any) -> Any:  # <- OldStep: `step` returned 4 values; Gymnasium expects 5: obs, reward, ter
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, info


class UnseededReset(Good):
    def observe(self) -> Any:
        return np.random.uniform(-1, 1, 2).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # <- UnseededReset: np.random); take all
        return super().reset(seed=seed)


class UnseededStep(Good):
    def step(self, action: Any) -> Any:  # <- UnseededStep: Python's module random; take all random numbers
        obs, _, *rest = super().step(action)
        return obs, random.random(), *rest


class RandomConstructor(Good):
    def __init__(self) -> None:  # <- RandomConstructor: a new instance gives other values
        super().__init__()
        self.goal = random.random()

    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return obs, self.goal, *rest


class Aliased(Good):
    def __init__(self) -> None:
        super().__init__()
        self.state = np.zeros(2, np.float32)

    def observe(self) -> Any:
        self.state[:] = super().observe()
        return self.state

    def step(self, action: Any) -> Any:  # <- Aliased: changes the observation that was returned before
        return super().step(action)


class NoActionSpace(Good):
    def __init__(self) -> None:  # <- NoActionSpace: has no action_space: set self.action_space in __init__
        super().__init__()
        del self.action_space


class WrongSpace(Good):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = (2,)  # type: ignore[assignment]  # <- WrongSpace: type tuple, not a space


class UnsupportedSpace(Good):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Graph(spaces.Box(-1, 1, (2,)), None)  # <- UnsupportedSpace: Graph

    def observe(self) -> Any:
        return spaces.GraphInstance(np.zeros((1, 2), np.float32), None, None)


class RaisingConstructor(Good):
    def __init__(self) -> None:
        super().__init__()
        self.level: Any = dict[str, Any]()["level"]  # <- RaisingConstructor: `__init__` raised KeyError: 'level'


class NeedsArguments(Good):
    def __init__(self, size: int) -> None:  # <- NeedsArguments: needs size: give it a default, or pass --set env_
        super().__init__()


class RaisingReset(Good):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        raise OSError("no map")  # <- RaisingReset: `reset` raised OSError: no map


class RaisingStep(Good):
    def step(self, action: Any) -> Any:
        return self.lookup(action)

    def lookup(self, action: Any) -> Any:
        return [1][action + 5]  # <- RaisingStep: `step` raised IndexError: list index out of range


class ChangedActions(Good):
    def reset(self, **options: Any) -> Any:  # <- ChangedActions: action_space was Discrete(2) and is Discrete(3) after
        self.action_space = spaces.Discrete(3)
        return super().reset(**options)


class ChangedActionsLater(Good):
    def step(self, action: Any) -> Any:  # <- ChangedActionsLater: was Discrete(2) and is Discrete(3) after
        self.action_space = spaces.Discrete(3)
        return super().step(action)


class RaisingInNumPy(Good):
    def step(self, action: Any) -> Any:
        self.np_random.choice(2, p=[0.5, 0.4])  # <- RaisingInNumPy: raised ValueError: Probabilities do not sum to 1
        return super().step(action)


class ExitingStep(Good):
    def step(self, action: Any) -> Any:
        raise SystemExit(3)  # <- ExitingStep: `step` raised SystemExit: 3


class RaisingClose(Good):
    def close(self) -> None:
        raise OSError("gone")  # <- RaisingClose: `close` raised OSError: gone


class NoSuperReset(Good):
    def observe(self) -> Any:
        return np.zeros(2, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # <- NoSuperReset: super().reset(seed=
        self.steps = 0
        return self.observe(), {}


class InfoNone(Good):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # <- InfoNone: None as info
        return super().reset(seed=seed)[0], None


class InfoList(Good):
    def step(self, action: Any) -> Any:  # <- InfoList: a list as info; Gymnasium expects a dict
        return *super().step(action)[:4], []


class HangingStep(Good):
    def step(self, action: Any) -> Any:
        while True:
            time.sleep(0.01)  # <- HangingStep: `step` did not return within 0.3 seconds


class Masked(Good):
    """A correct environment with masks; it refuses the actions that they forbid."""

    def mask(self) -> Any:
        return np.array([self.steps % 2, 1 - self.steps % 2])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0], {"action_mask": self.mask()}

    def step(self, action: Any) -> Any:
        assert action == 1 - self.steps % 2, "an invalid action"
        return *super().step(action)[:4], {"action_mask": self.mask()}


class LongMask(Masked):
    def reset(self, **options: Any) -> Any:  # <- LongMask: action_mask in info must have 2 entries at the start
        return super().reset(**options)[0], {"action_mask": np.array([0, 1, 0])}


class LostMask(Masked):
    def step(self, action: Any) -> Any:  # <- LostMask: info has no action_mask after step 3 of the episode
        values = super().step(action)
        return values if self.steps != 3 else (*values[:4], {})


class LogMask(Masked):
    def step(self, action: Any) -> Any:  # <- LogMask: must hold 1 or True for valid actions and 0 or False for others
        values = super().step(action)
        return *values[:4], {"action_mask": np.where(values[4]["action_mask"], 0, -np.inf)}


class ObservedMask(Good):
    def __init__(self) -> None:
        super().__init__()
        parts = {"own": self.observation_space, "action_mask": spaces.MultiBinary(3)}
        self.observation_space = spaces.Dict(parts)  # <- ObservedMask: has 3 entries, but there are 2 actions

    def observe(self) -> Any:
        return {"own": super().observe(), "action_mask": np.ones(3, np.int8)}


class NoEnv:  # <- NoEnv: NoEnv is not a gymnasium.Env: inherit from gymnasium.Env
    pass


class Doubling(gym.ObservationWrapper[Any, Any, Any]):
    def __init__(self) -> None:
        super().__init__(TimeLimit(Good(), 15))

    def observation(self, observation: Any) -> Any:  # <- Doubling: outside its space (-1 to 1)
        return observation * 2


class WrappedOldStep(gym.Wrapper[Any, Any, Any, Any]):
    """Passes on the mistake of the environment that it wraps, which is the place to name."""

    def __init__(self) -> None:
        super().__init__(InfoList())

    def step(self, action: Any) -> Any:
        return self.env.step(action)


for _name in ("Good", "OldStep", "NeedsArguments", "RaisingConstructor", "RaisingStep"):
    gym.register(f"Broken{_name}-v0", entry_point=f"{__name__}:{_name}", max_episode_steps=50)
