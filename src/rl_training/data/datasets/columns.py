"""Conversion of arrays to batch columns, with checks of dtype, shape and length."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rl_training.data.datasets import validation
from rl_training.data.datasets.actions import (
    EXPECTED_BY,
    SAME_SPACE,
    Bounds,
    derive_spec,
    scale_actions,
    with_action_range,
)
from rl_training.data.spaces import observations_of
from rl_training.types import Array, Arrays, EnvSpec

REQUIRED = ("obs", "actions", "rewards", "next_obs", "dones")


def to_columns(
    values: Mapping[str, npt.ArrayLike], spec: EnvSpec | None, *, action_range: Bounds | None,
    allow: Collection[str],
) -> tuple[Arrays, EnvSpec]:  # fmt: skip
    """Converts columns in the data's units to batch columns; also returns their spec."""
    validation.check_allow(allow)
    validation.require_columns(values, REQUIRED)
    if spec is not None:
        validation.require_box_observations(spec)
    columns = {name: to_array(name, value) for name, value in values.items()}
    columns.setdefault("truncated", np.zeros_like(columns["dones"]))
    validation.require_equal_lengths(columns)
    for name in ("rewards", "dones", "truncated", "returns_to_go", "durations", "discounts"):
        if name in columns:
            columns[name] = _flat(name, columns[name])
    obs, next_obs = (_observations(name, columns[name], spec) for name in ("obs", "next_obs"))
    if obs.shape != next_obs.shape:
        raise ValueError(f"obs have shape {obs.shape} but next_obs have {next_obs.shape}")
    if obs.dtype != next_obs.dtype:
        raise TypeError(f"obs are {obs.dtype} but next_obs are {next_obs.dtype}")
    columns = validation.drop_nan_rows({**columns, "obs": obs, "next_obs": next_obs}, allow)
    validation.require_flags({name: columns[name] for name in ("dones", "truncated")})
    if spec is not None and (converter := observations_of(spec)) is not None:
        validation.require_binary(columns, converter.binary_columns)
    if "discounts" in columns:
        validation.require_discounts(columns["discounts"])
    # A row that is both terminated and truncated has no next value to bootstrap from.
    columns["truncated"] = columns["truncated"] * (1 - columns["dones"])
    if spec is None:
        spec = with_action_range(derive_spec(columns["obs"], columns["actions"], action_range), action_range)
    elif spec.action_kind == "box" and columns["actions"].dtype.kind != "f" and action_range is None:
        raise TypeError(
            f"actions are integers, expected Box actions of {spec.action_dim} dimensions, {SAME_SPACE}; if these are "
            "Box actions, set action_range (--action-range LOW,HIGH)"
        )
    bounds, clip = with_action_range(spec, action_range), "out_of_range" in allow
    for name in ("actions", "next_actions"):
        if name in columns:
            columns[name] = scale_actions(columns[name], bounds, name=name, clip=clip)
    return columns, spec


def to_array(name: str, value: npt.ArrayLike) -> Array:
    """Converts a column to a dtype of batches, without a copy where possible."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"column {name!r} must hold numbers, got {array.dtype}")
    if array.ndim == 0:
        raise ValueError(f"column {name!r} must have one entry per row, got a single number")
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"column {name!r} holds {array.max()}, which does not fit into int64")
    with np.errstate(over="ignore"):  # overflow becomes infinite, which is rejected later
        return array.astype(_tensor_dtype(name, array.dtype), copy=False)


def _tensor_dtype(name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind == "u" and dtype != np.uint8:
        return np.dtype(np.int64)
    if dtype.kind == "f":
        return np.dtype(np.float32 if name in validation.LEARNED or dtype.itemsize <= 4 else np.float64)
    return dtype.newbyteorder("=")  # files may have another byte order


def _flat(name: str, column: Array) -> Array:
    if column.size != len(column):
        raise ValueError(f"column {name!r} must have one number per row, got shape {column.shape}")
    return column.reshape(-1).astype(np.float32, copy=False)


def _library_form(column: Array, spec: EnvSpec) -> Array:
    """Converts observations in the environment's own form, such as the states of a Discrete space."""
    converter = observations_of(spec)
    own = () if converter is None or converter.own_shape is None else (len(column), *converter.own_shape)
    if converter is None or column.size != math.prod(own) or not own:
        return column[:, None] if column.ndim == 1 else column
    is_whole = column.dtype.kind == "f" and (column % 1 == 0).all()  # integers that a table stores as floats
    return converter.rows((column.astype(np.int64) if is_whole else column).reshape(own))


def _observations(name: str, column: Array, spec: EnvSpec | None) -> Array:
    rows = column[:, None] if column.ndim == 1 else column
    if spec is not None and rows.shape[1:] != spec.obs_shape:
        rows = _library_form(column, spec)
    if 0 in rows.shape[1:]:
        raise ValueError(f"{name} are empty: their shape is {rows.shape}")
    shape, dtype = (rows.shape[1:], str(rows.dtype)) if spec is None else (spec.obs_shape, spec.obs_dtype)
    if rows.shape[1:] != shape:
        raise ValueError(f"{name} have shape {rows.shape[1:]} per row, expected {shape}, {EXPECTED_BY}")
    if dtype == "uint8" and rows.dtype != np.uint8:
        raise ValueError(f"{name} are {rows.dtype}, expected uint8, {EXPECTED_BY}")
    return rows if dtype == "uint8" else rows.astype(np.float32, copy=False)
