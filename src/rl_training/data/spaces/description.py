"""Descriptions of spaces as JSON, as in Minari's metadata, so that files and checkpoints can hold them.

For example `{"type": "Dict", "subspaces": {"goal": {"type": "Discrete", "n": 4, "start": 0}}}`. An image has the key
`layout`: its axes as letters, such as "HWC". `envs/spaces.py` describes Gymnasium's spaces.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rl_training.types import Array

Description: TypeAlias = "Mapping[str, Any]"
Path: TypeAlias = "tuple[str | int, ...]"

MAX_CHOICES = 1024  # values of one entry of an integer Box, to be a choice of a MultiDiscrete action


class Leaf(NamedTuple):
    """A basic space inside a space, and the keys that lead to it."""

    path: Path
    space: Description

    @property
    def name(self) -> str:
        return "/".join(map(str, self.path)) or "obs"

    @property
    def label(self) -> str:
        """Name in messages."""
        return f"part {self.name}" if self.path and isinstance(self.path[0], int) else self.name

    @property
    def kind(self) -> str:
        return str(self.space["type"])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape in the environment's own form."""
        if self.kind == "MultiDiscrete":
            return np.shape(self.space["nvec"])
        return () if self.kind == "Discrete" else tuple(self.space["shape"])

    @property
    def sizes(self) -> Array:
        """Number of values of each choice, flat."""
        if self.kind == "Box":
            return np.ravel(self.space["high"]) - np.ravel(self.space["low"]) + 1
        if self.kind == "MultiBinary":
            return np.full(math.prod(self.shape), 2)
        return np.ravel(self.space["n" if self.kind == "Discrete" else "nvec"])

    @property
    def starts(self) -> Array:
        """The first value of each choice, flat."""
        if self.kind == "MultiBinary":
            return np.zeros(math.prod(self.shape), np.int64)
        return np.ravel(self.space["low" if self.kind == "Box" else "start"])

    @property
    def bounds(self) -> tuple[Array, Array] | None:
        """Bounds of a Box of float64 actions."""
        if self.dtype.kind != "f" or "low" not in self.space:
            return None
        low, high = (np.array(self.space[name], self.dtype) for name in ("low", "high"))
        return low, high

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.space.get("dtype", np.int8 if self.kind == "MultiBinary" else np.int64))


def leaves(space: Description, path: Path = ()) -> Iterator[Leaf]:
    """Yields the basic spaces: entries of a Dict by name, entries of a Tuple in order. Text is left out."""
    if space["type"] == "Dict":
        for name in sorted(space["subspaces"]):
            yield from leaves(space["subspaces"][name], (*path, name))
    elif space["type"] == "Tuple":
        for index, each in enumerate(space["subspaces"]):
            yield from leaves(each, (*path, index))
    elif space["type"] != "Text":
        yield Leaf(path, space)


def rebuild(space: Description, parts: Mapping[Path, Any], path: Path = ()) -> Any:
    """Nests the values of the leaves like the space; a Dict lacks its text, a Tuple has "" there."""
    if space["type"] == "Dict":
        entries = space["subspaces"].items()
        return {name: rebuild(each, parts, (*path, name)) for name, each in entries if each["type"] != "Text"}
    if space["type"] == "Tuple":
        return tuple(rebuild(each, parts, (*path, index)) for index, each in enumerate(space["subspaces"]))
    return "" if space["type"] == "Text" else parts[path]
