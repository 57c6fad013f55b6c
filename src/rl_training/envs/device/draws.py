"""Random numbers that depend only on seed, environment, episode, step and number of the draw.

A counter-based generator has no state. So a resumed run and a captured CUDA graph draw the same numbers as an
uninterrupted, eager run, and no environment depends on the others.
"""

import torch
from torch import Tensor

MASK = 0xFFFFFFFF
# Multipliers below 2**31 keep the products of 32-bit numbers within int64.
FIRST, SECOND = 0x21F0AAAD, 0x735A2D97
STEP = 0x1E3779B9  # odd, so that consecutive counters differ in many bits


def mix(value: Tensor) -> Tensor:
    """Permutes 32-bit numbers, held as int64, so that every bit of the result depends on every bit of the value."""
    value = (value ^ (value >> 16)) * FIRST & MASK
    value = (value ^ (value >> 15)) * SECOND & MASK
    return value ^ (value >> 15)


class Draws:
    """Uniform numbers for rows of environments; each call gives new ones."""

    def __init__(self, keys: Tensor, parts: tuple[Tensor, ...] = ()) -> None:
        self._keys, self._parts, self._drawn = keys, parts, 0

    @classmethod
    def of(cls, seed: int, *parts: Tensor) -> "Draws":
        """Draws that depend on the seed and on each part, an int64 tensor [rows]."""
        keys = torch.stack([torch.full_like(parts[0], half & MASK) for half in (seed, seed >> 32 ^ STEP)])
        return cls(keys).at(*parts)

    def at(self, *parts: Tensor) -> "Draws":
        """Draws that depend on these and on each part, which is read when the first number is drawn."""
        return Draws(self.keys, parts)

    @property
    def keys(self) -> Tensor:
        """Two 32-bit numbers for each row, [2, rows]."""
        for part in self._parts:
            self._keys = mix(self._keys + part * STEP & MASK)
        self._parts = ()
        return self._keys

    def uniform(self, count: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Returns [rows, count] float64 numbers in [low, high), multiples of 2**-32 of the range."""
        return low + (high - low) * self._bits(count).double() / 2**32

    def integers(self, count: int, below: int) -> Tensor:
        """Returns [rows, count] int64 numbers in [0, below)."""
        return self._bits(count) * below >> 32

    def _bits(self, count: int) -> Tensor:
        first, second = self.keys.unsqueeze(-1)
        index = torch.arange(self._drawn, self._drawn + count, device=self.keys.device) * STEP
        self._drawn += count
        return mix(mix(first + index & MASK) ^ second)
