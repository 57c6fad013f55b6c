"""A Dict of observations, one picture and vectors, as one row of bytes: whatever holds observations holds these too."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.types import Array, ObsPart


def parts_of(space: spaces.Dict) -> tuple[ObsPart, ...]:
    """The picture first, then the vectors by name; whatever else there is makes a TypeError."""
    parts = []
    for name, each in sorted(space.items(), key=lambda item: str(item[0])):
        if not isinstance(each, spaces.Box) or not (each.dtype == np.uint8 or each.dtype.kind == "f"):
            raise TypeError(
                f"a Dict of observations holds Boxes of floats or of uint8, got {each} for {name!r}; "
                "wrap the environment"
            )
        parts.append(ObsPart(name, each.shape, "uint8" if each.dtype == np.uint8 else "float32"))
    pictures = [part for part in parts if part.dtype == "uint8"]
    vectors = [part for part in parts if part.dtype != "uint8"]
    if len(pictures) != 1 or len(pictures[0].shape) != 3 or not sum(part.size for part in vectors):
        raise TypeError(
            f"a Dict of observations must hold one picture, uint8 [channels, height, width], and vectors, got {space}; "
            "wrap the environment, by gymnasium.wrappers.FlattenObservation if all are vectors"
        )
    return (*pictures, *vectors)


def pack(obs: Any, parts: Sequence[ObsPart]) -> Array:
    """Observations with any leading shape, uint8 [..., bytes]; floats keep every bit."""
    if not isinstance(obs, Mapping) or {*obs} != {part.name for part in parts}:
        came = sorted(map(str, obs)) if isinstance(obs, Mapping) else type(obs).__name__
        raise ValueError(f"obs must be a dict of {', '.join(part.name for part in parts)}, got {came}")
    columns = [_bytes(np.asarray(obs[part.name]), part) for part in parts]
    if len({column.shape[:-1] for column in columns}) > 1:
        told = ", ".join(f"{part.name} of {np.shape(obs[part.name])}" for part in parts)
        raise ValueError(f"the parts of obs must have the same leading shape, got {told}")
    return np.concatenate(columns, -1)


def _bytes(given: Array, part: ObsPart) -> Array:
    lead = given.shape[: given.ndim - len(part.shape)]
    if given.shape[len(lead) :] != part.shape:
        raise ValueError(f"{part.name} must end in shape {part.shape}, got {given.shape}")
    if part.dtype == "uint8" and given.dtype != np.uint8 and not ((given >= 0) & (given <= 255)).all():
        raise ValueError(f"{part.name} is a picture, whose pixels must be in 0..255")
    rows = np.ascontiguousarray(given, part.dtype).reshape(*lead, math.prod(part.shape))
    if not np.isfinite(rows).all():
        raise ValueError(f"{part.name} holds values that are not finite")
    return rows.view(np.uint8)


class PackedObservation(gym.ObservationWrapper[Any, Any, Any]):
    """An environment with a Dict of observations, as one that shows rows of bytes; `parts` say what they are."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        assert isinstance(env.observation_space, spaces.Dict)
        self.parts = parts_of(env.observation_space)
        self.observation_space = spaces.Box(0, 255, (sum(part.bytes for part in self.parts),), np.uint8)

    def observation(self, observation: Any) -> Array:
        return pack(observation, self.parts)
