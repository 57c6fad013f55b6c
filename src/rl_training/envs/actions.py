"""Conversion of policy actions to the environment's units."""

import math
from typing import Any

import numpy as np

from rl_training.types import EnvSpec


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
