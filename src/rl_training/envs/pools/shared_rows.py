"""Arrays that a pool shares with its worker processes."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from contextlib import suppress
from math import prod
from multiprocessing import reduction
from typing import Any, NamedTuple

import numpy as np

ALIGNMENT = 64  # bytes


class StepArrays(NamedTuple):
    """The actions and the outcome of one step, one row per environment."""

    actions: np.ndarray
    next_obs: np.ndarray
    first_obs: np.ndarray  # of the next episode; written only where one ended
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray

    def rows(self, rows: slice) -> StepArrays:
        return StepArrays(*(array[rows] for array in self))


class SharedRows:
    """Allocates `StepArrays` in anonymous shared memory. Processes that get this object as an argument share them.

    The memory has no name in the file system, so nothing is left behind when processes are killed.
    """

    def __init__(self, count: int, observations: Any, actions: Any) -> None:
        obs = (count, *observations.shape), obs_dtype(observations)
        own_actions = (count, *actions.shape), np.dtype(actions.dtype)
        flags = (count,), np.dtype(bool)
        self._columns = [own_actions, obs, obs, ((count,), np.dtype(np.float64)), flags, flags]
        self._offsets = np.cumsum([0, *(_size(*column) for column in self._columns)]).tolist()
        file = _anonymous_file()
        self._close_file = weakref.finalize(self, os.close, file)
        os.ftruncate(file, self._offsets[-1])
        self._map(file)

    def _map(self, file: int) -> None:
        self._file, self._memory = file, mmap.mmap(file, self._offsets[-1])
        places = zip(self._columns, self._offsets, strict=False)
        self.arrays = StepArrays(*(np.ndarray(*column, buffer=self._memory, offset=start) for column, start in places))

    def close(self) -> None:
        """Frees the memory in the process that allocated it. The arrays must not be used any more."""
        if not self._close_file.alive:
            return
        del self.arrays
        self._close_file()
        with suppress(BufferError):  # an array is still in use, and frees it later
            self._memory.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"_columns": self._columns, "_offsets": self._offsets, "file": reduction.DupFd(self._file)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        file = state.pop("file").detach()
        vars(self).update(state)
        self._map(file)
        os.close(file)  # the mapping has its own


def obs_dtype(space: Any) -> np.dtype[Any]:
    """Returns the dtype of a pool's observations: images stay bytes, all others become float32."""
    return np.dtype(np.uint8 if space.dtype == np.uint8 else np.float32)


def _size(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    return -(-prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("environments")
    with tempfile.TemporaryFile() as file:  # without a name
        return os.dup(file.fileno())
