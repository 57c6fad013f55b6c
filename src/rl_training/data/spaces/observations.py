"""Conversion of observations between an environment's own form and the rows of the library."""

import math
import reprlib
from collections.abc import Mapping
from itertools import accumulate, takewhile
from typing import Any

import numpy as np

from rl_training.data.spaces.description import Description, Leaf, Path, leaves, rebuild
from rl_training.types import Array, ObsPart

MAX_EXACT = 2**24  # float32 holds every integer up to this one


class Image:
    """An image of a given layout; the library's form has the axes [channels, height, width]."""

    def __init__(self, leaf: Leaf) -> None:
        self.leaf, self.shape, layout = leaf, leaf.shape, str(leaf.space["layout"])
        self._order = [*(axis for axis, letter in enumerate(layout) if letter not in "HW"), layout.find("H")]
        self._order.append(layout.find("W"))
        self._moved = tuple(leaf.shape[axis] for axis in self._order)
        *channels, height, width = self._moved
        self.part = ObsPart(leaf.name, (math.prod(channels), height, width), "uint8")

    def encode(self, values: Array, lead: tuple[int, ...]) -> Array:
        require_pixels(values, self.leaf.label)
        return self._transposed(values, self._order, len(lead)).astype(np.uint8).reshape((*lead, *self.part.shape))

    def decode(self, images: Array) -> Array:
        lead = images.shape[:-3]
        back = np.argsort(self._order).tolist()
        return self._transposed(images.reshape((*lead, *self._moved)), back, len(lead)).astype(self.leaf.dtype)

    @staticmethod
    def _transposed(values: Array, order: list[int], skipped: int) -> Array:
        return values.transpose([*range(skipped), *(skipped + axis for axis in order)])


class Vector:
    """A part that becomes float32 numbers: Box and MultiBinary values flattened, Discrete values one-hot."""

    def __init__(self, leaf: Leaf) -> None:
        self.leaf, self.shape, self._is_one_hot = leaf, leaf.shape, leaf.kind in ("Discrete", "MultiDiscrete")
        size = math.prod(self.shape)
        if self._is_one_hot:
            sizes = leaf.sizes.tolist()
            *firsts, size = accumulate(sizes, initial=0)  # columns of the first value of each choice
            self._choices = firsts, leaf.starts.tolist(), sizes
        self.part = ObsPart(leaf.name, (size,) if self._is_one_hot else self.shape, "float32")
        self._is_wide = leaf.dtype.kind in "iu" and leaf.dtype.itemsize > 2

    def encode(self, values: Array, lead: tuple[int, ...]) -> Array:
        if self._is_one_hot:
            return self._one_hot(values, lead)
        rows = values.reshape((*lead, self.part.size)).astype(np.float32)
        if not math.isfinite(rows.sum()) and not np.isfinite(rows).all():  # the sum of large values may be infinite
            raise ValueError(f"{self.leaf.label} holds NaN or infinite values")
        if self.leaf.kind == "MultiBinary" and not ((rows == 0) | (rows == 1)).all():
            raise ValueError(f"{self.leaf.label} must hold 0 and 1 only, got {reprlib.repr(values.tolist())}")
        if self._is_wide and max(values.max(initial=0), -int(values.min(initial=0))) > MAX_EXACT:
            raise ValueError(
                f"{self.leaf.label} holds {reprlib.repr(values.tolist())}, but float32 holds integers exactly only to "
                f"{MAX_EXACT}; scale it with gymnasium.wrappers.TransformObservation"
            )
        return rows

    def decode(self, rows: Array) -> Array:
        lead = rows.shape[:-1]
        if not self._is_one_hot:
            return rows.reshape((*lead, *self.shape)).astype(self.leaf.dtype)
        firsts, starts, _ = self._choices
        chosen = [part.argmax(-1) for part in np.split(rows, firsts[1:], -1)]
        values = np.stack(chosen, -1) + starts
        return values.reshape((*lead, *self.shape)).astype(self.leaf.dtype)

    def _one_hot(self, values: Array, lead: tuple[int, ...]) -> Array:
        rows = np.zeros((*lead, self.part.size), np.float32)
        if values.dtype.kind == "f":
            raise self._not_a_choice(values)
        if not lead:  # a step of one environment: faster without arrays
            for first, start, size, value in zip(*self._choices, values.ravel().tolist(), strict=True):
                if not 0 <= value - start < size:
                    raise self._not_a_choice(values)
                rows[first + value - start] = 1
            return rows
        firsts, starts, sizes = map(np.array, self._choices)
        chosen = values.reshape(-1, len(sizes)).astype(np.int64) - starts
        if ((chosen < 0) | (chosen >= sizes)).any():
            raise self._not_a_choice(values)
        rows.reshape(-1, self.part.size)[np.arange(len(chosen))[:, None], chosen + firsts] = 1
        return rows

    def _not_a_choice(self, values: Array) -> ValueError:
        _, starts, sizes = self._choices
        ranges = ", ".join(f"{start} to {start + size - 1}" for start, size in zip(starts, sizes, strict=True))
        return ValueError(f"{self.leaf.label} must hold integers from {ranges}, got {reprlib.repr(values.tolist())}")


class Observations:
    """Converts observations of a described space to rows of the library, and back.

    - Without images, a row is one float32 vector: all parts concatenated in the order of `leaves`.
    - A single image is uint8 [channels, height, width].
    - Otherwise a row is bytes: the images, then the vectors, each in the order of `leaves`.
    """

    def __init__(self, space: Description) -> None:
        self.space, found = space, list(leaves(space))
        self._images = [Image(leaf) for leaf in found if "layout" in leaf.space]
        self._vectors = [Vector(leaf) for leaf in found if "layout" not in leaf.space]
        self._all: list[Image | Vector] = [*self._images, *self._vectors]
        parts = tuple(each.part for each in self._all)
        self.is_packed = bool(self._images) and len(parts) > 1
        self.parts = parts if self.is_packed else ()
        self.dtype = np.dtype(np.uint8 if self._images else np.float32)
        self.own_shape = None if space["type"] in ("Dict", "Tuple") else self._all[0].shape  # of a basic space
        self.shape = parts[0].shape if self._images else (sum(part.size for part in parts),)
        if self.is_packed:
            self.shape = (sum(part.bytes for part in parts),)

    @property
    def binary_columns(self) -> list[int]:
        """Columns of rows that hold 0 or 1; none of rows with images."""
        kinds = [each.leaf.kind for each in self._vectors for _ in range(each.part.size)]
        return [] if self._images else [column for column, kind in enumerate(kinds) if kind == "MultiBinary"]

    def rows(self, obs: Any) -> Array:
        """Converts observations with any leading shape."""
        given = [(each, _array(self._value(obs, each.leaf), each.leaf)) for each in self._all]
        leads = [_lead(values, each) for each, values in given]
        if any(lead != leads[0] for lead in leads):
            shapes = ", ".join(f"{each.leaf.label} of {values.shape}" for each, values in given)
            raise ValueError(f"all parts of obs must have the same leading shape, got {shapes}")
        lead = leads[0]
        rows = [each.encode(values, lead) for each, values in given]
        if self.is_packed:
            rows = [row.reshape((*lead, -1)).view(np.uint8) for row in rows]
        return rows[0] if len(rows) == 1 else np.concatenate(rows, -1)

    def own(self, rows: Array) -> Any:
        """Converts rows back; a Dict lacks its text."""
        sizes = [each.part.bytes if self.is_packed else each.part.size for each in self._all]
        lead = rows.shape[: rows.ndim - len(self.shape)]
        columns = [rows] if len(sizes) == 1 else np.split(rows, np.cumsum(sizes)[:-1], -1)
        parts = {}
        for each, column in zip(self._all, columns, strict=True):
            if self.is_packed:
                column = np.ascontiguousarray(column).view(each.part.dtype)
            shape = each.part.shape if isinstance(each, Image) else (each.part.size,)
            parts[each.leaf.path] = each.decode(column.reshape((*lead, *shape)))
        return rebuild(self.space, parts)

    def place_of(self, name: str) -> int:
        """Column, or byte of a packed row, at which the values of an entry of a Dict start."""
        before = takewhile(lambda each: each.leaf.path != (name,), self._all)
        return sum(each.part.bytes if self.is_packed else each.part.size for each in before)

    def _value(self, obs: Any, leaf: Leaf) -> Any:
        space = self.space
        for depth, key in enumerate(leaf.path):
            self._require_fit(obs, space, leaf.path[:depth])
            obs, space = obs[key], space["subspaces"][key]
        return obs

    def _require_fit(self, obs: Any, space: Description, path: Path) -> None:
        if space["type"] == "Tuple":
            if not isinstance(obs, (tuple, list)) or len(obs) != len(space["subspaces"]):
                raise ValueError(f"{Leaf(path, space).label} must be a tuple of {len(space['subspaces'])} parts")
            return
        needed = {name for name, each in space["subspaces"].items() if each["type"] != "Text"}
        if not isinstance(obs, Mapping) or not needed <= obs.keys() <= space["subspaces"].keys():
            received = sorted(map(str, obs)) if isinstance(obs, Mapping) else type(obs).__name__
            raise ValueError(f"{Leaf(path, space).label} must be a dict of {', '.join(sorted(needed))}, got {received}")


def require_pixels(values: Array, name: str) -> None:
    if values.dtype != np.uint8 and not ((values >= 0) & (values <= 255) & (values % 1 == 0)).all():
        raise ValueError(f"{name} is an image: its pixels must be integers in 0..255")


def _array(values: Any, leaf: Leaf) -> Array:
    try:
        return np.asarray(values)
    except ValueError as error:  # lists of different lengths
        raise ValueError(f"{leaf.label} must hold observations of one shape, {leaf.shape}") from error


def _lead(values: Array, part: Image | Vector) -> tuple[int, ...]:
    lead = values.shape[: values.ndim - len(part.shape)] if values.ndim >= len(part.shape) else values.shape
    if values.shape != (*lead, *part.shape):
        raise ValueError(f"{part.leaf.label} must end in shape {part.shape}, got {values.shape}")
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{part.leaf.label} must hold numbers, got {values.dtype}")
    return lead
