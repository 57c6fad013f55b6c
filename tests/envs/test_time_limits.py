"""`env_kwargs.max_episode_steps` limits the episodes of ids, classes and functions alike."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from rl_training.envs.creation.making import make_env


class Endless(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 1.0, False, False, {}


class Own(Endless):
    """Has a time limit of its own."""

    def __init__(self, max_episode_steps: int) -> None:
        self.limit = max_episode_steps


def endless(size: int = 1) -> gym.Env[Any, Any]:
    return Endless()


def length(env: gym.Env[Any, Any]) -> int | None:
    """Steps until the first episode is truncated; None if it is not in 20."""
    env.reset(seed=0)
    for step in range(1, 21):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        assert not terminated
        if truncated:
            return step
    return None


@pytest.mark.parametrize("env_id", [Endless, endless, partial(endless, size=2), lambda: Endless()])
@pytest.mark.parametrize(("limit", "steps"), [(7, 7), (-1, None)])
def test_a_class_or_function_gets_the_limit_that_an_id_gets(env_id, limit, steps):
    assert length(make_env(env_id, {"max_episode_steps": limit})) == steps
    gym.register("Endless-v0", env_id, max_episode_steps=9)
    try:
        assert length(make_env("Endless-v0", {"max_episode_steps": limit})) == steps
    finally:
        del gym.registry["Endless-v0"]


def test_the_limit_comes_before_the_other_options():
    env: Any = make_env(CartPoleEnv, {"max_episode_steps": 3, "sutton_barto_reward": True})
    assert length(env) == 3
    assert env.unwrapped._sutton_barto_reward


def test_a_class_that_takes_the_option_itself_is_given_it():
    env: Any = make_env(Own, {"max_episode_steps": 5})
    assert env.unwrapped.limit == 5
    assert length(env) is None


@pytest.mark.parametrize(("limit", "kind"), [(0, ValueError), ("5", TypeError)])
def test_another_limit_is_refused_by_its_name(limit, kind):
    with pytest.raises(kind, match="max_episode_steps"):
        make_env(Endless, {"max_episode_steps": limit})
