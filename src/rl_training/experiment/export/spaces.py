"""Tensors of an exported policy: observations and actions in the environment's own form, one for each basic space."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from rl_training.data.datasets.actions import unscale_actions
from rl_training.data.spaces import Leaf, actions_of, leaves, observations_of
from rl_training.types import Array, Arrays, Batch, EnvSpec

OBS, ACTIONS = "obs", "actions"
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")  # others become int64


class Port(NamedTuple):
    """A named input or output, and the keys that lead to it in a Dict or Tuple."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    path: tuple[str | int, ...] = ()
    leaf: Leaf | None = None  # None: the form of the library


class Observations:
    """Inputs of a policy, and their conversion to the rows that a learner reads."""

    def __init__(self, spec: EnvSpec) -> None:
        self.converter = observations_of(spec)
        self.ports = [Port(OBS, spec.obs_shape, getattr(torch, spec.obs_dtype))]
        if self.converter is not None:
            self.ports = [_port(OBS, leaf) for leaf in leaves(self.converter.space)]

    def zeros(self, rows: int) -> Batch:
        return {port.name: torch.zeros(rows, *port.shape, dtype=port.dtype) + _first(port) for port in self.ports}

    def inputs(self, rows: Tensor) -> Batch:
        """Converts a learner's rows to inputs."""
        if self.converter is None:
            return {OBS: rows}
        own = self.converter.own(rows.numpy())
        return {port.name: torch.as_tensor(_at(own, port.path)).to(port.dtype) for port in self.ports}

    def rows(self, inputs: Batch) -> Tensor:
        """Converts inputs to a learner's rows, in operations that can be traced.

        A learner reads images and vectors from packed bytes. Here they are floats, and a number stands in the place of
        the first of its four bytes (see `models.encoders.floats_in`).
        """
        if self.converter is None:
            return inputs[OBS]
        images = [_image(inputs[port.name], port.leaf) for port in self.ports if port.leaf and _is_image(port.leaf)]
        numbers = [
            _vector(inputs[port.name], port.leaf) for port in self.ports if port.leaf and not _is_image(port.leaf)
        ]
        if not images:
            return torch.cat(numbers, -1)
        if len(self.ports) == 1:
            return images[0]
        spread = [pad(each.unsqueeze(-1), (0, 3)).flatten(1) for each in numbers]
        return torch.cat([*(each.flatten(1).float() for each in images), *spread], -1)


class Actions:
    """Outputs of a policy, made of a learner's actions."""

    def __init__(self, spec: EnvSpec) -> None:
        self.spec, converter = spec, actions_of(spec)
        dtype = torch.float32 if spec.action_kind == "box" else torch.int64
        self.ports = [Port(ACTIONS, spec.action_shape, dtype)]
        if converter is not None:
            self.ports = [_port(ACTIONS, leaf) for leaf in converter.leaves]

    def outputs(self, actions: Tensor) -> Batch:
        """Converts policy actions to the environment's units and shapes."""
        units = unscale_actions(actions, self.spec)
        parts = units.reshape(units.shape[0], -1).split(self.sizes, -1)
        return {
            port.name: part.reshape(units.shape[0], *port.shape).to(port.dtype)
            for port, part in zip(self.ports, parts, strict=True)
        }

    def flat(self, outputs: Arrays) -> Array:
        """Joins the actions [rows, entries] of these outputs."""
        return np.concatenate([outputs[port.name].reshape(len(outputs[port.name]), -1) for port in self.ports], 1)

    @cached_property
    def sizes(self) -> list[int]:
        return [math.prod(port.shape) for port in self.ports]


def _port(kind: str, leaf: Leaf) -> Port:
    dtype = leaf.dtype.name if leaf.dtype.kind != "f" else "float32"
    dtype = dtype if dtype in INTEGERS or leaf.dtype.kind == "f" else "int64"
    return Port("/".join(map(str, (kind, *leaf.path))), leaf.shape, getattr(torch, dtype), leaf.path, leaf)


def _first(port: Port) -> Tensor:
    """The first value of each choice, which a trace must be able to encode; else 0."""
    if port.leaf is None or not _is_choice(port.leaf):
        return torch.zeros((), dtype=port.dtype)
    return torch.as_tensor(port.leaf.starts.reshape(port.shape)).to(port.dtype)


def _at(value: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _is_image(leaf: Leaf) -> bool:
    return "layout" in leaf.space


def _is_choice(leaf: Leaf) -> bool:
    return leaf.kind in ("Discrete", "MultiDiscrete")


def _image(values: Tensor, leaf: Leaf) -> Tensor:
    """Moves the axes of images to [batch, channels, height, width]."""
    layout = str(leaf.space["layout"])
    order = [axis for axis, letter in enumerate(layout) if letter not in "HW"]
    moved = values.permute(0, *(1 + axis for axis in (*order, layout.index("H"), layout.index("W"))))
    height, width = moved.shape[-2:]
    return moved.reshape(values.shape[0], -1, height, width)


def _vector(values: Tensor, leaf: Leaf) -> Tensor:
    flat = values.reshape(values.shape[0], -1)
    if not _is_choice(leaf):
        return flat.float()
    chosen = (flat.long() - torch.as_tensor(leaf.starts)).unbind(1)
    hot = [one_hot(each, int(size)) for each, size in zip(chosen, leaf.sizes, strict=True)]
    return torch.cat(hot, -1).float()
