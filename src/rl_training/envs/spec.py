"""Derives the `EnvSpec` of an environment from its spaces."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.envs.spaces import LibrarySpaces
from rl_training.types import EnvSpec


def env_spec_of(env: gym.Env[Any, Any]) -> EnvSpec:
    """Returns the spec of an environment from `make_env`."""
    spec = spec_of_spaces(env.observation_space, env.action_space)
    return env.described(spec) if isinstance(env, LibrarySpaces) else spec


def spec_of_spaces(obs: gym.Space[Any], actions: gym.Space[Any]) -> EnvSpec:
    """Returns the spec of Box observations and Box, Discrete or MultiDiscrete actions."""
    if not isinstance(obs, spaces.Box) or not isinstance(actions, spaces.Box | spaces.Discrete | spaces.MultiDiscrete):
        raise TypeError(
            "a spec needs Box observations and Box, Discrete or MultiDiscrete actions, "
            f"got {type(obs).__name__} and {type(actions).__name__}"
        )
    obs_dtype = "uint8" if obs.dtype == np.uint8 else "float32"
    if isinstance(actions, spaces.Discrete):
        return EnvSpec(obs.shape, "discrete", int(actions.n), obs_dtype, action_start=int(actions.start))
    if isinstance(actions, spaces.MultiDiscrete):
        sizes, starts = (tuple(each.ravel().tolist()) for each in (actions.nvec, actions.start))
        shape = actions.nvec.shape
        return EnvSpec(
            obs.shape, "multi_discrete", len(sizes), obs_dtype, shape, action_sizes=sizes, action_starts=starts
        )
    low, high = (tuple(bound.ravel().astype(float).tolist()) for bound in (actions.low, actions.high))
    dtype = None if actions.dtype == np.float32 else str(actions.dtype)
    return EnvSpec(obs.shape, "box", len(low), obs_dtype, actions.shape, low, high, action_dtype=dtype)
