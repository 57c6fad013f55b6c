"""Conversion of actions between environment units and [-1, 1], and an EnvSpec derived from data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from rl_training.data.datasets.validation import DatasetError, blocks, reduce_rows
from rl_training.data.readers.names import LOGGED
from rl_training.types import Array, Batch, EnvSpec

if TYPE_CHECKING:
    from torch import Tensor

TOLERANCE = 1e-3  # fraction of the half range; float32 rounding and clipped noise exceed bounds by less
FEW = 20  # different whole numbers: more may be amounts, as few floats may be Discrete actions
MOST_ACTIONS = 10_000  # Discrete actions derived from data, unless there are more rows

# Data must fit the spaces of the environment. Without one, they must fit those of the agent's training data.
SAME_SPACE = "as in the environment or in the agent's training data"
EXPECTED_BY = f"{SAME_SPACE}; pass data of the same task"

Bounds: TypeAlias = "tuple[float | Sequence[float], float | Sequence[float]]"  # low and high, scalar or per dimension


def derive_spec(obs: Array, actions: Array, action_range: Bounds | None = None) -> EnvSpec:
    """Derives the spec from data: integer actions without `action_range` are choices, all others Box.

    One integer per row is a Discrete action, several are a MultiDiscrete one.
    """
    obs_shape, obs_dtype = obs.shape[1:], "uint8" if obs.dtype == np.uint8 else "float32"
    flat = actions.reshape(len(actions), -1)
    if actions.dtype.kind != "f" and action_range is None:
        _require_indices_from_0(actions)
        _require_few_indices(actions)
        sizes = tuple(int(highest) + 1 for highest in reduce_rows(np.maximum, flat))
        if len(sizes) == 1:
            return EnvSpec(obs_shape, "discrete", sizes[0], obs_dtype)
        shape, starts = actions.shape[1:], (0,) * len(sizes)
        return EnvSpec(
            obs_shape, "multi_discrete", len(sizes), obs_dtype, shape, action_sizes=sizes, action_starts=starts
        )
    magnitudes = np.abs([reduce_rows(np.minimum, flat), reduce_rows(np.maximum, flat)]).max(0).astype(np.float32)
    if (magnitudes <= 1 + TOLERANCE).all():
        magnitudes = np.ones_like(magnitudes)
    # A dimension that is always 0 gives no bound; 1 keeps the scaling defined.
    high = tuple(np.where(magnitudes > 0, magnitudes, 1).tolist())
    low = tuple(-bound for bound in high)
    return EnvSpec(obs_shape, "box", len(high), obs_dtype, actions.shape[1:] or (1,), low, high)


def guessed_actions(actions: Array) -> Iterator[tuple[str, str, str]]:
    """Warnings (kind, text, fix) about a spec that `derive_spec` guesses from actions in the data's units."""
    flat = actions.reshape(len(actions), -1)
    flat = flat[np.isfinite(flat).all(1)]
    if not flat.size:
        return
    if actions.dtype.kind != "f":
        if flat.shape[1] > 2 and flat.min() == 0 and flat.max() == 1 and (flat.sum(1) == 1).all():
            text = f"every row has a single 1 in {flat.shape[1]} columns of actions, which are read as separate choices"
            yield "one_hot_actions", text, "if they are one-hot, store the number of the action in one column"
        elif (most := max(len(np.unique(entries)) for entries in flat.T)) > FEW:
            text = f"the actions are {most:,} whole numbers, and they are read as choices without an order"
            yield "whole_actions", text, "if they are amounts, set --action-range LOW,HIGH"
        else:
            yield from _unused_choices(flat)
        return
    low, high = reduce_rows(np.minimum, flat), reduce_rows(np.maximum, flat)
    largest, is_one_sided = float(np.maximum(-low, high).max()), bool(((low >= 0) & (high > 0)).any())
    if largest > 1 + TOLERANCE or is_one_sided:
        used = f"the largest magnitude in the data ({largest:g})" if largest > 1 + TOLERANCE else "-1 to 1"
        below = ", although no action is below 0" if is_one_sided else ""
        text = f"the action bounds are unknown; {used} is used{below}"
        yield "guessed_bounds", text, "set them with --action-range LOW,HIGH, or name the environment"
    if (low >= 0).all() and (flat % 1 == 0).all() and 2 <= max(len(np.unique(entries)) for entries in flat.T) <= FEW:
        is_joint, count = flat.shape[1] > 1, len(np.unique(flat))
        what = f"floats of whole numbers in {flat.shape[1]} columns" if is_joint else f"floats of {count} whole numbers"
        option = "--categories with the name of each column" if is_joint else "--categories actions"
        fix = f"if they number choices, use {option} in a table, or store integers"
        yield "whole_actions", f"all actions are {what}, and they are read as Box actions", fix


def _unused_choices(flat: Array) -> Iterator[tuple[str, str, str]]:
    """Warns if at least half of the choices never occur, such as 1 to 49 in a column of 0, 50 and 100."""
    counts = [(len(np.unique(entries)), int(entries.max()) + 1) for entries in flat.T if entries.min() >= 0]
    found, size = max(counts, key=lambda each: each[1] / each[0], default=(1, 1))
    if size >= 2 * found > 2:
        text = f"only {found:,} of {size:,} choices occur in the actions, and the policy may choose the others too"
        fix = "list the choices with --categories in a table, or number them from 0; set --action-range LOW,HIGH"
        yield "unused_choices", text, f"{fix} if they are amounts"


def spec_in_library_units(obs: Array, actions: Array) -> EnvSpec:
    """Derives the spec from a batch, whose Box actions must be in [-1, 1]."""
    if actions.dtype.kind == "f" and (np.abs(actions) > 1 + TOLERANCE).any():
        raise ValueError(
            f"Box actions must be in [-1, 1], the largest magnitude is {np.abs(actions).max():g}; "
            "use TransitionDataset.from_dict, which scales them"
        )
    return derive_spec(obs, actions)


def with_action_range(spec: EnvSpec, action_range: Bounds | None) -> EnvSpec:
    """Replaces the action bounds of a spec by those the data was recorded in."""
    if action_range is None:
        return spec
    if spec.action_kind != "box":
        raise ValueError(f"action_range is for Box actions, but the actions are {_choices(spec)}")
    low, high = (per_dimension(bound, spec.action_dim) for bound in action_range)
    if any(bottom >= top for bottom, top in zip(low, high, strict=True)):
        raise ValueError(f"action_range must be [low, high] with low < high, got {list(action_range)}")
    return replace(spec, action_low=low, action_high=high)


def log_units(spec: EnvSpec) -> float:
    """log |da / da'| for actions a in the spec's units and a' in [-1, 1], whose densities differ by that factor."""
    return sum(math.log((high - low) / 2) for low, high in zip(spec.action_low, spec.action_high, strict=True))


def logged_in_spec_units(columns: Batch, spec: EnvSpec, action_range: Bounds | None) -> Batch:
    """Converts logged densities of Box actions from the units of `action_range` to those of the spec's bounds."""
    if action_range is None or spec.action_kind != "box" or columns.keys().isdisjoint(LOGGED):
        return columns
    shift = log_units(with_action_range(spec, action_range)) - log_units(spec)
    found = {name: columns[name] for name in LOGGED if name in columns}
    found = {name: each + shift if name == "action_logprob" else each * math.exp(shift) for name, each in found.items()}
    return {**columns, **found}


def scale_actions(actions: Array, spec: EnvSpec, *, name: str = "actions", clip: bool = False) -> Array:
    """Converts actions from environment units: Box to [-1, 1] (clipped or checked), others to int64 indices."""
    if spec.action_kind != "box":
        indices = _to_indices(actions, spec, name)
        return indices[:, 0] if spec.action_kind == "discrete" else indices
    flat = actions.reshape(len(actions), -1)
    if flat.shape[1] != spec.action_dim:
        raise ValueError(f"{name} have {flat.shape[1]} dimensions, expected {spec.action_dim}, {EXPECTED_BY}")
    center, half_range = _center_and_half_range(spec)
    scaled = flat.astype(np.float32)
    scaled -= center
    scaled /= half_range
    if not clip:
        _require_in_bounds(flat, scaled, spec, name)
    return scaled.clip(-1, 1, out=scaled)


def unscale_actions(actions: Tensor, spec: EnvSpec) -> Tensor:
    """Converts actions of a batch to environment units, flat."""
    if spec.action_kind == "discrete":
        return actions + spec.action_start
    if spec.action_kind == "multi_discrete":
        return actions + actions.new_tensor(spec.action_starts)
    center, half_range = map(actions.new_tensor, _center_and_half_range(spec))
    low, high = actions.new_tensor(spec.action_low), actions.new_tensor(spec.action_high)
    return (actions * half_range + center).clamp(low, high)  # rounding may leave the bounds


def _require_in_bounds(actions: Array, scaled: Array, spec: EnvSpec, name: str) -> None:
    if not any((np.abs(scaled[rows]) > 1 + TOLERANCE).any() for rows in blocks(scaled)):
        return
    excess = np.abs(scaled)
    outside = (excess > 1 + TOLERANCE).any(1)
    row, dimension = np.unravel_index(excess.argmax(), excess.shape)
    raise DatasetError(
        f"{name} are outside their bounds in {outside.sum()} of {len(actions)} rows; the farthest is "
        f"row {{row}} with {float(actions[row, dimension]):g}, allowed is {spec.action_low[dimension]:g} to "
        f"{spec.action_high[dimension]:g}",
        "set the recorded range with --action-range LOW,HIGH, or clip the actions with --allow out_of_range",
        row=int(row),
    )


def _require_indices_from_0(actions: Array) -> None:
    negative = (actions.reshape(len(actions), -1) < 0).any(1)
    if negative.any():
        first, kind = int(negative.argmax()), "Discrete" if actions.size == len(actions) else "MultiDiscrete"
        raise DatasetError(
            f"actions are integers from {actions.min()} to {actions.max()}, but {kind} actions start at 0 unless the "
            f"environment is known: {negative.sum()} of {len(actions)} rows are negative, the first is row {{row}}",
            f"renumber them from 0, name the environment if its actions start at {actions.min()}, or set "
            "--action-range if they are Box actions",
            row=first,
        )


def _require_few_indices(actions: Array) -> None:
    """Refuses numbers such as ids, which would each be an output of the policy."""
    largest = int(actions.max())
    if largest >= max(MOST_ACTIONS, len(actions)):
        raise DatasetError(
            f"actions are integers up to {largest:,} in {len(actions):,} rows, and a policy would have as many actions",
            "renumber those that occur from 0 (in a table, --categories actions does), or set --action-range if they "
            "are Box actions",
        )


def _to_indices(actions: Array, spec: EnvSpec, name: str) -> Array:
    """Indices from 0, [rows, choices]; a Discrete action is one choice."""
    sizes, starts = np.array(spec.choice_sizes), np.array(spec.action_starts or (spec.action_start,))
    if actions.size != len(actions) * len(sizes):
        wanted = "one integer" if len(sizes) == 1 else f"{len(sizes)} integers"
        raise DatasetError(
            f"{name} of a {_choices(spec)} space must be {wanted} per row, got shape {actions.shape}",
            "without an environment, several integers per row are MultiDiscrete actions, and --action-range LOW,HIGH "
            "reads them as Box actions",
        )
    numbers = (actions if actions.dtype.kind == "f" else actions.astype(np.int64, copy=False)).reshape(len(actions), -1)
    values = numbers - starts
    with np.errstate(invalid="ignore"):  # overflow is rejected below
        indices: Array = values.astype(np.int64)
    if (wrong := (indices != values) | (indices < 0) | (indices >= sizes)).any():
        first, choice = np.argwhere(wrong)[0].tolist()
        lowest, highest = starts[choice], starts[choice] + sizes[choice] - 1
        columns = spec.action_columns or range(len(sizes))
        place = f" in column {columns[choice]!r}" if len(sizes) > 1 else ""
        raise DatasetError(
            f"{name}{place} must be integers from {lowest} to {highest}, {SAME_SPACE}; {wrong.any(1).sum()} of "
            f"{len(wrong)} rows are not; the first is row {{row}} with {numbers[first, choice].item()}",
            f"renumber the actions from {lowest}, or pass data of the same task",
            row=first,
        )
    return indices


def _choices(spec: EnvSpec) -> str:
    """The space of choices, in messages."""
    if spec.action_kind == "discrete":
        return f"Discrete({spec.action_dim})"
    return f"MultiDiscrete({list(spec.action_sizes)})"


def per_dimension(bound: float | Sequence[float], count: int) -> tuple[float, ...]:
    if isinstance(bound, (int, float)):
        return (float(bound),) * count
    if len(bound) != count:
        raise ValueError(f"action_range has {len(bound)} bounds, the actions have {count} dimensions")
    return tuple(float(each) for each in bound)


def _center_and_half_range(spec: EnvSpec) -> tuple[Array, Array]:
    low, high = np.array(spec.action_low, np.float32), np.array(spec.action_high, np.float32)
    with np.errstate(over="ignore"):  # overflow is rejected below
        half_range = (high - low) / 2
    if not (np.isfinite(half_range) & (half_range > 0)).all():
        bounds = f"{list(spec.action_low)} to {list(spec.action_high)}"
        raise ValueError(f"Box bounds must be finite with low < high, got {bounds}")
    return (low + high) / 2, half_range
