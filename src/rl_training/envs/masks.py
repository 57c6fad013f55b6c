"""Masks of valid actions: the key `action_mask` of Dict observations, which masks in `info` are added to."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.envs.checks.first_steps import EnvFault
from rl_training.envs.checks.returned import INFO_MASKS
from rl_training.types import EnvSpec

KEY = "action_mask"


class ActionMasks(gym.Wrapper[Any, Any, Any, Any]):
    """Checks that every mask has a valid action; with `from_info`, it adds the masks of `info` to the observations.

    Observations that are not a Dict become one, with the keys `obs` and `action_mask`. The choices of a MultiDiscrete
    action follow one another in a mask.
    """

    def __init__(self, env: gym.Env[Any, Any], *, from_info: bool) -> None:
        super().__init__(env)
        self.from_info, self.steps, sizes = from_info, 0, action_counts(env.action_space)
        self._count, self._starts = sum(sizes), np.cumsum([0, *sizes[:-1]])
        self.last: dict[str, np.ndarray] = {}  # mask of the next action; snapshots leave dicts out
        if from_info:
            own = env.observation_space
            parts = own.spaces if isinstance(own, spaces.Dict) else {"obs": own}
            self.observation_space = spaces.Dict({**parts, KEY: spaces.MultiBinary(self._count)})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        self.steps = 0
        return self._kept(self.masked(obs, info, ended=False)), info

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        masked = self.masked(obs, info, ended=terminated or truncated)
        return self._kept(masked), reward, terminated, truncated, info

    def _kept(self, obs: Any) -> Any:
        self.last[KEY] = np.ravel(obs[KEY])
        return obs

    def masked(self, obs: Any, info: dict[str, Any], *, ended: bool) -> Any:
        """Returns the observation with its mask; a mask that cannot be used raises EnvFault."""
        if self.from_info:
            own = obs if isinstance(obs, Mapping) else {"obs": obs}
            obs = {**own, KEY: self._from(info, ended=ended)}
        else:
            self._require_flags(np.ravel(obs[KEY]), "")
        valid = np.logical_or.reduceat(np.ravel(obs[KEY]) > 0.5, self._starts)
        if not ended and not valid.all():
            choice = f" for choice {valid.argmin()}" if len(valid) > 1 else ""
            raise EnvFault(f"{KEY} has no valid action{choice} {self._moment()}; end the episode there, or allow one")
        return obs

    def sample(self, space: Any, mask: np.ndarray | None) -> Any:
        """Samples an action that the mask allows; any action without one."""
        if mask is None or (not isinstance(space, spaces.Discrete) and space.nvec.ndim > 1):
            return space.sample()
        parts = np.split(mask.astype(np.int8), self._starts[1:])
        return space.sample(parts[0] if isinstance(space, spaces.Discrete) else tuple(parts))

    def _from(self, info: dict[str, Any], *, ended: bool) -> np.ndarray:
        given = mask_in(info)
        if given is None and ended:
            return np.zeros(self._count, np.int8)  # it is not used
        if given is None:
            raise EnvFault(
                f"info has no {KEY} {self._moment()}, but the training began with masks; "
                "return one with every reset and step"
            )
        if given.size != self._count:
            raise EnvFault(f"{KEY} in info must have {self._count} entries {self._moment()}, got {given.size}")
        self._require_flags(given, " in info")
        return given.astype(np.int8)

    def _require_flags(self, mask: np.ndarray, place: str) -> None:
        wrong = (mask != 0) & (mask != 1)
        if wrong.any():
            raise EnvFault(
                f"{KEY}{place} must hold 1 or True for valid actions and 0 or False for others, "
                f"got {mask[wrong.argmax()]} {self._moment()}"
            )

    def _moment(self) -> str:
        return f"after step {self.steps} of the episode" if self.steps else "at the start of an episode"


def sample_action(env: gym.Env[Any, Any]) -> Any:
    """Samples a random action of an environment, a valid one if it has masks."""
    inner = env
    while isinstance(inner, gym.Wrapper):
        if isinstance(inner, ActionMasks):
            return inner.sample(env.action_space, inner.last.get(KEY))
        inner = inner.env
    return env.action_space.sample()


def with_action_masks(env: gym.Env[Any, Any], like: EnvSpec | None, *, from_info: bool) -> gym.Env[Any, Any]:
    """Wraps an environment with masks; `like` is the spec of the run that the environment is for, which decides."""
    if like is not None and like.action_mask is None:
        return env
    if has_mask_key(env):
        return ActionMasks(env, from_info=False)
    return ActionMasks(env, from_info=True) if from_info or like is not None else env


def has_mask_key(env: gym.Env[Any, Any]) -> bool:
    """Whether observations have an entry `action_mask`; one without a number for each action raises ValueError."""
    own, count = env.observation_space, sum(action_counts(env.action_space))
    part = own.spaces.get(KEY) if isinstance(own, spaces.Dict) else None
    if not count or not isinstance(part, spaces.Box | spaces.MultiBinary):
        return False
    if (entries := int(np.prod(part.shape))) != count:
        raise ValueError(
            f"{KEY} of the observations has {entries} entries, but there are {count} actions; "
            "give it one for each action, or rename it if it is no mask"
        )
    return True


def action_counts(space: spaces.Space[Any]) -> list[int]:
    """Number of actions of each choice; none for spaces that take no masks."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    return space.nvec.ravel().tolist() if isinstance(space, spaces.MultiDiscrete) else []


def mask_in(info: Mapping[str, Any]) -> np.ndarray | None:
    """Returns the mask in `info`, flat; it may be a sequence with an array for each choice of MultiDiscrete."""
    given = next((info[key] for key in INFO_MASKS if info.get(key) is not None), None)
    if isinstance(given, tuple | list):
        return np.concatenate([np.ravel(part) for part in given]) if len(given) else None
    return None if given is None else np.ravel(given)


def masks_of(env: gym.Env[Any, Any], info: Any) -> ActionMasks | None:
    """Returns the masks of an environment whose first reset returned `info`; None if it has none."""
    if not action_counts(env.action_space):
        return None
    try:
        if has_mask_key(env):
            return ActionMasks(env, from_info=False)
    except ValueError:
        return None
    return ActionMasks(env, from_info=True) if isinstance(info, dict) and mask_in(info) is not None else None


def gives_masks(env: gym.Env[Any, Any]) -> bool:
    """Whether `info` has a mask at the first reset; the global random generators keep their state."""
    if not action_counts(env.action_space) or has_mask_key(env):
        return False
    with _kept_randomness():
        return mask_in(env.reset(seed=0)[1]) is not None


@contextmanager
def _kept_randomness() -> Iterator[None]:
    before, numpy_before = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(before)
        np.random.set_state(numpy_before)
