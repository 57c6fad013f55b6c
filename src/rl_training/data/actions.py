"""Actions between the environment's units and the library's, and what data alone tells of its environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor

from rl_training.data.faults import DatasetFault, blocks
from rl_training.types import EnvSpec

TOLERANCE = 1e-3  # float32 files and clipped noise overshoot a bound by less than this share of the half range

Bounds: TypeAlias = "tuple[float | Sequence[float], float | Sequence[float]]"  # of all dimensions, or of each


def derive_spec(obs: Tensor, actions: Tensor, action_range: Bounds | None = None) -> EnvSpec:
    """The environment that the data seems to come from: integer actions are Discrete, others or bounded ones Box."""
    obs_shape, obs_dtype = tuple(obs.shape[1:]), "uint8" if obs.dtype == torch.uint8 else "float32"
    if not actions.is_floating_point() and action_range is None:
        return EnvSpec(obs_shape, "discrete", int(actions.max()) + 1, obs_dtype)
    magnitudes = actions.reshape(len(actions), -1).abs().amax(0).float()
    if bool((magnitudes <= 1 + TOLERANCE).all()):
        magnitudes = torch.ones_like(magnitudes)
    # A dimension that is always 0 tells nothing of its bound; 1 keeps the scaling defined.
    high = tuple(magnitudes.where(magnitudes > 0, 1.0).tolist())
    low = tuple(-bound for bound in high)
    return EnvSpec(obs_shape, "box", len(high), obs_dtype, tuple(actions.shape[1:]) or (1,), low, high)


def in_range(spec: EnvSpec, action_range: Bounds | None) -> EnvSpec:
    """This spec with the bounds that the data's actions were recorded in."""
    if action_range is None:
        return spec
    if spec.action_kind == "discrete":
        raise ValueError(f"action_range is for Box actions, and these are one of {spec.action_dim}")
    low, high = (_each_dimension(bound, spec.action_dim) for bound in action_range)
    if any(least >= most for least, most in zip(low, high, strict=True)):
        raise ValueError(f"action_range must be [low, high] with low < high, got {list(action_range)}")
    return replace(spec, action_low=low, action_high=high)


def scale_actions(actions: Tensor, spec: EnvSpec, *, name: str = "actions", clip: bool = False) -> Tensor:
    """Actions in the spec's units as a batch holds them: Box in [-1, 1], Discrete int64; clipped, or else refused."""
    if spec.action_kind == "discrete":
        return _checked_indices(actions.long() if not actions.is_floating_point() else actions, spec, name)
    flat = actions.reshape(len(actions), -1)
    if flat.shape[1] != spec.action_dim:
        raise ValueError(f"{name} have {flat.shape[1]} dimensions, the environment's have {spec.action_dim}")
    center, half_range = _center_and_half_range(spec, flat.device)
    scaled = torch.empty(flat.shape, device=flat.device)
    excess = torch.empty(len(flat), device=flat.device)
    for rows in blocks(flat):
        scaled[rows] = (flat[rows] - center) / half_range
        excess[rows] = scaled[rows].abs().amax(1)
    if not clip:
        _require_inside(flat, excess, spec, name)
    return scaled.clamp_(-1, 1)


def unscale_actions(actions: Tensor, spec: EnvSpec) -> Tensor:
    """Actions of a batch in the environment's own units, flat."""
    if spec.action_kind == "discrete":
        return actions + spec.action_start
    center, half_range = _center_and_half_range(spec, actions.device)
    return actions * half_range + center


def _require_inside(actions: Tensor, excess: Tensor, spec: EnvSpec, name: str) -> None:
    outside = excess > 1 + TOLERANCE
    if not bool(outside.any()):
        return
    row = int(excess.argmax())
    low, high = torch.tensor(spec.action_low), torch.tensor(spec.action_high)
    dimension = int(((actions[row].cpu() - (low + high) / 2).abs() / (high - low)).argmax())
    raise DatasetFault(
        f"{name} lie outside their bounds in {int(outside.sum())} of {len(actions)} rows, the farthest is "
        f"row {row} with {float(actions[row, dimension]):g} where {spec.action_low[dimension]:g} to "
        f"{spec.action_high[dimension]:g} is allowed",
        "give the range they were recorded in with --action-range, or clip them with --allow out_of_range",
    )


def _checked_indices(actions: Tensor, spec: EnvSpec, name: str) -> Tensor:
    if actions.numel() != len(actions):
        raise ValueError(f"{name} of a Discrete space are one integer a row, got shape {tuple(actions.shape)}")
    values = actions.reshape(-1) - spec.action_start
    indices, count = values.long(), spec.action_dim
    wrong = (indices != values) | (indices < 0) | (indices >= count)
    if bool(wrong.any()):
        first = int(wrong.nonzero()[0])
        raise DatasetFault(
            f"{name} must be integers from 0 to {count - 1}, {int(wrong.sum())} of {len(wrong)} rows are not; "
            f"the first is row {first} with {values[first].item()}",
            "number the choices from 0, or give --action-range if they are amounts",
        )
    return indices


def _each_dimension(bound: float | Sequence[float], count: int) -> tuple[float, ...]:
    if isinstance(bound, (int, float)):
        return (float(bound),) * count
    if len(bound) != count:
        raise ValueError(f"action_range has {len(bound)} bounds, the actions have {count} dimensions")
    return tuple(float(each) for each in bound)


def _center_and_half_range(spec: EnvSpec, device: torch.device) -> tuple[Tensor, Tensor]:
    low = torch.tensor(spec.action_low, device=device)
    high = torch.tensor(spec.action_high, device=device)
    half_range = (high - low) / 2
    if not bool((half_range.isfinite() & (half_range > 0)).all()):
        raise ValueError(
            f"Box bounds must be finite with low < high, got {list(spec.action_low)} to {list(spec.action_high)}"
        )
    return (low + high) / 2, half_range
