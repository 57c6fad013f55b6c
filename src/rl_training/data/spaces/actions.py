"""Conversion of flat actions to an environment's own form."""

from typing import Any

import numpy as np

from rl_training.data.spaces.description import Description, leaves, rebuild
from rl_training.types import Array


class Actions:
    """Converts flat actions of a described space, in the order of `leaves`, to the environment's own form, and back.

    Flat actions are in the environment's units. All parts are choices (integers), or all are numbers.
    """

    def __init__(self, space: Description) -> None:
        self.space, self.leaves = space, list(leaves(space))
        self._parts = [(leaf.path, leaf.shape, leaf.dtype, leaf.bounds) for leaf in self.leaves]
        self._ends = np.cumsum([np.prod(leaf.shape, dtype=int) for leaf in self.leaves]).tolist()
        self.length = self._ends[-1]

    def own(self, flat: Array) -> Any:
        """Converts flat actions [..., length]."""
        parts, start, lead = {}, 0, flat.shape[:-1]
        for (path, shape, dtype, bounds), end in zip(self._parts, self._ends, strict=True):
            part = flat[..., start:end].reshape(lead + shape).astype(dtype)
            part = part if bounds is None else part.clip(*bounds)  # float32 rounds them
            parts[path] = part if part.shape else part[()]  # a single Discrete action is a NumPy integer
            start = end
        return rebuild(self.space, parts)
