"""Derives the `EnvSpec` of an environment from its spaces."""

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.envs.spaces import PackedObservation
from rl_training.types import EnvSpec


def env_spec_of(env: gym.Env[Any, Any]) -> EnvSpec:
    """Returns the spec of an environment from `make_env`; raises TypeError for unsupported spaces."""
    spec = _spec_of_spaces(env)
    return replace(spec, obs_parts=env.parts) if isinstance(env, PackedObservation) else spec


def _spec_of_spaces(env: gym.Env[Any, Any]) -> EnvSpec:
    obs, actions = env.observation_space, env.action_space
    if not isinstance(obs, spaces.Box) or not (obs.dtype == np.uint8 or obs.dtype.kind == "f"):
        raise TypeError(f"observations must be a Box of floats or uint8, got {obs}; wrap the environment")
    obs_dtype = "uint8" if obs.dtype == np.uint8 else "float32"
    if isinstance(actions, spaces.Discrete):
        return EnvSpec(obs.shape, "discrete", int(actions.n), obs_dtype, action_start=int(actions.start))
    if isinstance(actions, spaces.MultiDiscrete):
        sizes, starts = (tuple(each.ravel().tolist()) for each in (actions.nvec, actions.start))
        shape = actions.nvec.shape
        return EnvSpec(
            obs.shape, "multi_discrete", len(sizes), obs_dtype, shape, action_sizes=sizes, action_starts=starts
        )
    if not isinstance(actions, spaces.Box) or actions.dtype.kind != "f":
        raise TypeError(
            f"actions must be a Box of floats, Discrete or MultiDiscrete, got {actions}; wrap the environment "
            "(`rl-training algos` lists the action spaces of every algorithm)"
        )
    if not actions.is_bounded():
        raise TypeError(
            f"a Box action space must have finite bounds, because actions are scaled from [-1, 1], got {actions}"
        )
    low, high = (tuple(bound.ravel().astype(float).tolist()) for bound in (actions.low, actions.high))
    return EnvSpec(obs.shape, "box", len(low), obs_dtype, actions.shape, low, high)
