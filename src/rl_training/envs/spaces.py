"""Conversions at the environment boundary: Dict observations to rows of bytes, actions to the environment's units."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.types import Array, EnvSpec, ObsPart


def parts_of(space: spaces.Dict) -> tuple[ObsPart, ...]:
    """Returns the image first, then the vectors by name; raises TypeError for other contents."""
    parts = []
    for name, each in sorted(space.items(), key=lambda item: str(item[0])):
        if not isinstance(each, spaces.Box) or not (each.dtype == np.uint8 or each.dtype.kind == "f"):
            raise TypeError(
                f"a Dict observation must hold Boxes of floats or uint8, got {each} for {name!r}; wrap the environment"
            )
        parts.append(ObsPart(name, each.shape, "uint8" if each.dtype == np.uint8 else "float32"))
    images = [part for part in parts if part.dtype == "uint8"]
    vectors = [part for part in parts if part.dtype != "uint8"]
    if len(images) != 1 or len(images[0].shape) != 3 or not sum(part.size for part in vectors):
        raise TypeError(
            f"a Dict observation must hold one image, uint8 [channels, height, width], and vectors, got {space}; "
            "wrap the environment (gymnasium.wrappers.FlattenObservation if all are vectors)"
        )
    return (*images, *vectors)


def pack(obs: Any, parts: Sequence[ObsPart]) -> Array:
    """Packs Dict observations with any leading shape into uint8 [..., bytes]; floats are stored bit by bit."""
    if not isinstance(obs, Mapping) or {*obs} != {part.name for part in parts}:
        received = sorted(map(str, obs)) if isinstance(obs, Mapping) else type(obs).__name__
        raise ValueError(f"obs must be a dict of {', '.join(part.name for part in parts)}, got {received}")
    columns = [_bytes(np.asarray(obs[part.name]), part) for part in parts]
    if len({column.shape[:-1] for column in columns}) > 1:
        shapes = ", ".join(f"{part.name} of {np.shape(obs[part.name])}" for part in parts)
        raise ValueError(f"all parts of obs must have the same leading shape, got {shapes}")
    return np.concatenate(columns, -1)


def _bytes(values: Array, part: ObsPart) -> Array:
    lead = values.shape[: values.ndim - len(part.shape)]
    if values.shape[len(lead) :] != part.shape:
        raise ValueError(f"{part.name} must end in shape {part.shape}, got {values.shape}")
    if part.dtype == "uint8" and values.dtype != np.uint8 and not ((values >= 0) & (values <= 255)).all():
        raise ValueError(f"{part.name} is an image: its pixels must be in 0..255")
    rows = np.ascontiguousarray(values, part.dtype).reshape(*lead, math.prod(part.shape))
    if not np.isfinite(rows).all():
        raise ValueError(f"{part.name} holds NaN or infinite values")
    return rows.view(np.uint8)


class PackedObservation(gym.ObservationWrapper[Any, Any, Any]):
    """Packs Dict observations into rows of bytes, laid out as `parts`."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        assert isinstance(env.observation_space, spaces.Dict)
        self.parts = parts_of(env.observation_space)
        self.observation_space = spaces.Box(0, 255, (sum(part.bytes for part in self.parts),), np.uint8)

    def observation(self, observation: Any) -> Array:
        return pack(observation, self.parts)


class ActionConverter:
    """Checks policy actions and converts them to the units, dtype and shape of the environment."""

    def __init__(self, space: Any, spec: EnvSpec, num_envs: int) -> None:
        self._space, self._spec, self._num_envs = space, spec, num_envs
        self._rows = (num_envs, *spec.action_shape)
        # Tiled because broadcasting a small row costs more than the arithmetic.
        low, high = (np.tile(bound, (num_envs, 1)) for bound in (spec.action_low, spec.action_high))
        bounds = low, high, (high - low) / 2, (high + low) / 2
        self._low, self._high, self._scale, self._center = (bound.astype(space.dtype) for bound in bounds)
        self._is_centered = not self._center.any()
        converters = {"box": self._scale_box, "discrete": self._shift_discrete, "multi_discrete": self._shift_multi}
        self._convert = converters[spec.action_kind]

    def __call__(self, actions: np.ndarray) -> np.ndarray:
        return self._convert(actions)

    def _scale_box(self, actions: np.ndarray) -> np.ndarray:
        if actions.shape != self._low.shape:
            raise ValueError(f"actions must have shape {self._low.shape}, got {actions.shape}")
        bad = first_non_finite(actions)
        if bad is not None:
            raise ValueError(f"actions must be finite, got {actions[bad[0]].tolist()} for environment {bad[0]}")
        units = actions * self._scale
        if not self._is_centered:
            units += self._center
        units = np.minimum(np.maximum(units, self._low), self._high)  # faster than clip for small arrays
        return units.astype(self._space.dtype, copy=False).reshape(self._rows)

    def _shift_discrete(self, actions: np.ndarray) -> np.ndarray:
        if actions.shape != (self._num_envs,) or actions.dtype.kind not in "iu":
            raise ValueError(f"actions must be {self._num_envs} integers, got {actions.dtype} of shape {actions.shape}")
        count = self._spec.action_dim
        for env, action in enumerate(actions.tolist()):
            if not 0 <= action < count:
                raise ValueError(f"actions must be in 0..{count - 1}, got {action} for environment {env}")
        if self._space.start != 0:
            actions = actions + self._space.start
        return actions.astype(self._space.dtype)

    def _shift_multi(self, actions: np.ndarray) -> np.ndarray:
        shape = (self._num_envs, self._spec.action_dim)
        if actions.shape != shape or actions.dtype.kind not in "iu":
            raise ValueError(f"actions must be integers of shape {shape}, got {actions.dtype} of shape {actions.shape}")
        invalid = (actions < 0) | (actions >= self._spec.action_sizes)
        if invalid.any():
            env, index = np.argwhere(invalid)[0].tolist()
            highest, value = self._spec.action_sizes[index] - 1, actions[env, index]
            raise ValueError(f"action {index} must be in 0..{highest}, got {value} for environment {env}")
        return (actions + self._spec.action_starts).astype(self._space.dtype).reshape(self._rows)


def first_non_finite(rows: np.ndarray) -> list[int] | None:
    """Returns the index of the first NaN or infinite value, or None."""
    if rows.dtype.kind == "u" or math.isfinite(np.vdot(rows, rows)):  # fast path; the product of large values overflows
        return None
    indices: list[list[int]] = np.argwhere(~np.isfinite(rows)).tolist()
    return indices[0] if indices else None
