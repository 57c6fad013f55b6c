"""From arrays of any kind to the columns of a batch, refusing what cannot be one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rl_training.data.actions import Bounds, derive_spec, in_range, scale_actions
from rl_training.data.faults import require_allowable, require_columns, require_equal_lengths, require_flags
from rl_training.data.mending import without_nan
from rl_training.types import Batch, EnvSpec

REQUIRED = ("obs", "actions", "rewards", "next_obs", "dones")

Values: TypeAlias = "Mapping[str, npt.ArrayLike | Tensor]"


def to_columns(
    values: Values, spec: EnvSpec | None = None, *, action_range: Bounds | None = None, allow: Collection[str] = ()
) -> tuple[Batch, EnvSpec]:
    """Columns as a batch holds them, from values in the data's units, and the spec they follow."""
    require_allowable(allow)
    require_columns(values, REQUIRED)
    columns = {name: to_tensor(name, value) for name, value in values.items()}
    columns.setdefault("truncated", torch.zeros_like(columns["dones"]))
    require_equal_lengths(columns)
    for name in ("rewards", "dones", "truncated", "returns_to_go"):
        if name in columns:
            columns[name] = _one_number_a_row(name, columns[name])
    for name in ("obs", "next_obs"):
        columns[name] = _observations(name, columns[name], spec)
    if columns["obs"].shape != columns["next_obs"].shape:
        raise ValueError(f"obs are {tuple(columns['obs'].shape)} but next_obs are {tuple(columns['next_obs'].shape)}")
    columns = without_nan(columns, allow)
    require_flags(columns)
    # Dying at the time limit is dying: there is no future to bootstrap from.
    columns["truncated"] = columns["truncated"] * (1 - columns["dones"])
    if spec is None:
        spec = in_range(derive_spec(columns["obs"], columns["actions"], action_range), action_range)
    for name in ("actions", "next_actions"):
        if name in columns:
            columns[name] = scale_actions(
                columns[name], in_range(spec, action_range), name=name, clip="out_of_range" in allow
            )
    return columns, spec


def to_tensor(name: str, value: npt.ArrayLike | Tensor) -> Tensor:
    """A column in one of the dtypes that batches hold, on the same memory where it can be."""
    if not isinstance(value, Tensor):
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"column {name!r} must hold numbers, got {array.dtype}")
        if array.dtype.kind == "f" or (array.dtype.kind == "u" and array.dtype != np.uint8):
            array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64, copy=False)
        value = torch.from_numpy(array if array.flags.writeable and array.flags.c_contiguous else array.copy())
    if value.ndim == 0:
        raise ValueError(f"column {name!r} must have one entry a row, got a single number")
    return value.detach().float() if value.is_floating_point() else value.detach()


def _one_number_a_row(name: str, column: Tensor) -> Tensor:
    if column.numel() != len(column):
        raise ValueError(f"column {name!r} must have one number a row, got shape {tuple(column.shape)}")
    return column.reshape(-1).float()


def _observations(name: str, column: Tensor, spec: EnvSpec | None) -> Tensor:
    rows = column.unsqueeze(1) if column.ndim == 1 else column
    if spec is None:
        return rows if rows.dtype == torch.uint8 else rows.float()
    if tuple(rows.shape[1:]) != spec.obs_shape:
        raise ValueError(
            f"{name} have shape {tuple(rows.shape[1:])} a row, the environment's observations have {spec.obs_shape}"
        )
    if spec.obs_dtype == "uint8" and rows.dtype != torch.uint8:
        raise ValueError(f"{name} are {rows.dtype}, the environment's observations are uint8")
    return rows if spec.obs_dtype == "uint8" else rows.float()
