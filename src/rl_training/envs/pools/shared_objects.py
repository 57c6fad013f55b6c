"""Refuses one environment object in several places, where the episodes would disturb each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import WeakValueDictionary

import gymnasium as gym

_users: WeakValueDictionary[int, Any] = WeakValueDictionary()  # group that steps an environment, by the object's id


def claim(group: Any, envs: Iterable[gym.Env[Any, Any]]) -> None:
    """Records that `group`, which keeps these environments, steps them. Raises ValueError if one is already in use."""
    cores = [_core(env) for env in envs]
    if len({*map(id, cores)}) < len(cores) or any(id(core) in _users for core in cores):
        raise ValueError(
            f"the function that creates environments returned the same {type(cores[0]).__name__} object twice; create "
            "a new one in it, or pass the object itself, such as PPO(env), which is copied where it is needed"
        )
    _users.update({id(core): group for core in cores})


def release(group: Any) -> None:
    """Records that a group steps its environments no longer."""
    for number in [number for number, user in _users.items() if user is group]:
        del _users[number]


def _core(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    while isinstance(env, gym.Wrapper):  # not `unwrapped`, which may be the shared simulator of several environments
        env = env.env
    return env
