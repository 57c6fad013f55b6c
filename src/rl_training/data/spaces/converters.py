"""The converters of an `EnvSpec`, and actions in the form of its environment or table."""

import json
from functools import lru_cache
from typing import Any

import numpy as np

from rl_training.data.spaces.actions import Actions
from rl_training.data.spaces.named import action_names, named_choices
from rl_training.data.spaces.observations import Observations
from rl_training.types import Array, EnvSpec


def observations_of(spec: EnvSpec) -> Observations | None:
    """Returns the converter of observations, or None if the environment's own form is the library's."""
    if spec.obs_space is not None:
        return _observations(json.dumps(spec.obs_space))
    if not spec.obs_parts:
        return None
    parts = {
        part.name: {"type": "Box", "dtype": part.dtype, "shape": part.shape}
        | ({"layout": "CHW"} if part.dtype == "uint8" else {})
        for part in spec.obs_parts
    }
    return _observations(json.dumps({"type": "Dict", "subspaces": parts}))


def actions_of(spec: EnvSpec) -> Actions | None:
    """Returns the converter of flat actions, or None if the environment's own form is an array or an integer."""
    return None if spec.action_space is None else _actions(json.dumps(spec.action_space))


def own_actions(actions: Array, spec: EnvSpec, lead: tuple[int, ...]) -> Any:
    """Converts flat actions in the environment's units to its own form, or to the names that a table has for them."""
    converter = actions_of(spec)
    if converter is not None:
        return converter.own(actions.reshape(*lead, converter.length))
    shaped = actions.reshape(lead + spec.action_shape)
    if spec.action_dtype is not None:
        bounds = (
            np.reshape(each, spec.action_shape).astype(spec.action_dtype)
            for each in (spec.action_low, spec.action_high)
        )
        shaped = shaped.astype(spec.action_dtype).clip(*bounds)  # float32 rounds the bounds of float64
    if (by_column := named_choices(shaped, spec)) is not None:
        return by_column
    if (names := action_names(spec)) is not None:
        shaped = np.asarray(np.array(names)[shaped])
    return shaped if shaped.ndim else shaped[()]  # a single Discrete action is a NumPy integer, which is hashable


@lru_cache(maxsize=64)
def _observations(text: str) -> Observations:
    return Observations(json.loads(text))


@lru_cache(maxsize=64)
def _actions(text: str) -> Actions:
    return Actions(json.loads(text))
