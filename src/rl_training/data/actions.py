"""Actions between the environment's units and the library's, and what data alone tells of its environment."""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.types import EnvSpec

TOLERANCE = 1e-3  # float32 files and clipped noise overshoot a bound by less than this share of the half range


def derive_spec(obs: Tensor, actions: Tensor) -> EnvSpec:
    """The environment that the data seems to come from: integer actions are Discrete, others Box."""
    obs_shape, obs_dtype = tuple(obs.shape[1:]), "uint8" if obs.dtype == torch.uint8 else "float32"
    if not actions.is_floating_point():
        return EnvSpec(obs_shape, "discrete", int(actions.max()) + 1, obs_dtype)
    magnitudes = actions.reshape(len(actions), -1).abs().amax(0)
    if bool((magnitudes <= 1 + TOLERANCE).all()):
        magnitudes = torch.ones_like(magnitudes)
    # A dimension that is always 0 tells nothing of its bound; 1 keeps the scaling defined.
    high = tuple(magnitudes.where(magnitudes > 0, 1.0).tolist())
    low = tuple(-bound for bound in high)
    return EnvSpec(obs_shape, "box", len(high), obs_dtype, tuple(actions.shape[1:]) or (1,), low, high)


def scale_actions(actions: Tensor, spec: EnvSpec, *, name: str = "actions") -> Tensor:
    """Actions in the environment's units as a batch holds them: Box in [-1, 1], Discrete int64."""
    if spec.action_kind == "discrete":
        return _checked_indices(actions - spec.action_start, spec.action_dim, name)
    flat = actions.reshape(len(actions), -1).float()
    if flat.shape[1] != spec.action_dim:
        raise ValueError(f"{name} have {flat.shape[1]} dimensions, the environment's have {spec.action_dim}")
    center, half_range = _center_and_half_range(spec, flat.device)
    scaled = (flat - center) / half_range
    outside = (scaled.abs() > 1 + TOLERANCE).any(1)
    if bool(outside.any()):
        row, dimension = divmod(int(scaled.abs().argmax()), spec.action_dim)
        raise ValueError(
            f"{name} lie outside the environment's bounds in {int(outside.sum())} of {len(flat)} rows, the farthest "
            f"with {float(flat[row, dimension]):g} where {spec.action_low[dimension]:g} to "
            f"{spec.action_high[dimension]:g} is allowed; clip them, or name the environment they were recorded in"
        )
    return scaled.clamp(-1, 1)


def unscale_actions(actions: Tensor, spec: EnvSpec) -> Tensor:
    """Actions of a batch in the environment's own units, flat."""
    if spec.action_kind == "discrete":
        return actions + spec.action_start
    center, half_range = _center_and_half_range(spec, actions.device)
    return actions * half_range + center


def _checked_indices(actions: Tensor, count: int, name: str) -> Tensor:
    if actions.numel() != len(actions):
        raise ValueError(f"{name} of a Discrete space are one integer a row, got shape {tuple(actions.shape)}")
    indices = actions.reshape(-1).long()
    wrong = (indices != actions.reshape(-1)) | (indices < 0) | (indices >= count)
    if bool(wrong.any()):
        first = int(wrong.nonzero()[0])
        raise ValueError(
            f"{name} must be integers from 0 to {count - 1}, {int(wrong.sum())} of {len(wrong)} rows are not; "
            f"the first is row {first} with {actions.reshape(-1)[first].item()}"
        )
    return indices


def _center_and_half_range(spec: EnvSpec, device: torch.device) -> tuple[Tensor, Tensor]:
    low = torch.tensor(spec.action_low, device=device)
    high = torch.tensor(spec.action_high, device=device)
    half_range = (high - low) / 2
    if not bool((half_range.isfinite() & (half_range > 0)).all()):
        raise ValueError(
            f"Box bounds must be finite with low < high, got {list(spec.action_low)} to {list(spec.action_high)}"
        )
    return (low + high) / 2, half_range
