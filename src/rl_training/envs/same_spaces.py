"""Compares the spaces of an environment with those that a run began with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from rl_training.envs.creation.making import EnvFactory, spec_of
from rl_training.messages import many
from rl_training.types import EnvSpec

SPACES = {"obs_space": "observation space", "action_space": "action space"}
ACTIONS = {
    "action_low": "lower action bounds", "action_high": "upper action bounds", "action_start": "first action",
    "action_sizes": "numbers of actions", "action_starts": "first actions",
}  # fmt: skip


def require_same_spaces(spec: EnvSpec, source: EnvFactory, *, guessed: bool = False) -> None:
    """Raises ValueError if an environment given now has other spaces than the one that the agent was trained in.

    `guessed`: the agent was trained from data alone, whose action bounds may be guesses.
    """
    found = spec_of(source, like=spec)
    if _shapes(found) != _shapes(spec):
        raise ValueError(f"{source} has {_shapes(found)}, but the agent was trained for {_shapes(spec)}")
    for name, what in (SPACES if guessed else SPACES | ACTIONS).items():
        own, trained = getattr(found, name), getattr(spec, name)
        if own is not None and trained is not None and not _same(own, trained):
            raise ValueError(f"{source} has the {what} {_text(own)}, but the agent was trained for {_text(trained)}")


def changed_space(began: EnvSpec, now: EnvSpec) -> str | None:
    """Returns a sentence about the first space of a run that has changed since it began, or None."""
    if began.obs_parts != now.obs_parts:
        held, holds = (", ".join(f"{part.name} {part.shape}" for part in spec.obs_parts) for spec in (began, now))
        return f"the Dict observation had {held} when this run started, and has {holds} now"
    for name, what in (SPACES | ACTIONS).items():
        before, after = getattr(began, name), getattr(now, name)
        if not _same(before, after):
            were, are = ("were", "are") if what.endswith("s") else ("was", "is")
            return f"the {what} {were} {_text(before)} when this run started, and {are} {_text(after)} now"
    return None


def _same(one: object, other: object) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):  # bounds may be rounded differently on another machine
        return len(one) == len(other) and bool(np.allclose(one, other, rtol=1e-6, atol=0))
    return _without_float_bounds(one) == _without_float_bounds(other)


def _without_float_bounds(space: Any) -> Any:
    """Leaves out the bounds of float64 actions, which earlier versions did not record in the space."""
    if isinstance(space, list):
        return [_without_float_bounds(each) for each in space]
    if not isinstance(space, Mapping):
        return space
    is_float = space.get("type") == "Box" and np.dtype(space["dtype"]).kind == "f"
    names = space.keys() - ({"low", "high"} if is_float else set())
    return {name: _without_float_bounds(space[name]) for name in names}


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _shapes(spec: EnvSpec) -> str:
    actions = many(spec.action_dim, "action" if spec.action_kind == "discrete" else "action dimension")
    parts = f" ({', '.join(part.name for part in spec.obs_parts)})" if spec.obs_parts else ""
    return f"observations of shape {spec.obs_shape}{parts} and {actions}"
