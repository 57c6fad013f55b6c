"""The environment boundary: every environment gets the observations and actions that the library handles.

- Observations: a float32 vector, an image uint8 [channels, height, width], or images and vectors packed into bytes.
- Actions: a Box with finite bounds, Discrete or MultiDiscrete.

`docs/guide/spaces.md` has the rule for each space, `data/spaces` the conversion of values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.data.datasets.actions import Bounds, per_dimension
from rl_training.data.spaces import MAX_CHOICES, Actions, Description, Observations, leaves
from rl_training.envs.masks import KEY, ActionMasks
from rl_training.types import EnvSpec

MIN_SIDE = 5  # pixels along the shorter side of an image; smaller arrays are vectors


class LibrarySpaces(gym.Wrapper[Any, Any, Any, Any]):
    """Converts observations and actions; `notes` are sentences about it for the user."""

    def __init__(
        self, env: gym.Env[Any, Any], observations: Observations | None, actions: Actions | None,
        action_space: spaces.Space[Any], notes: list[str],
    ) -> None:  # fmt: skip
        super().__init__(env)
        self.observations, self.actions, self.notes = observations, actions, notes
        self.action_space = action_space
        if observations is not None:
            low, high = (0, 255) if observations.dtype == np.uint8 else (-np.inf, np.inf)
            self.observation_space = spaces.Box(low, high, observations.shape, observations.dtype.type)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        return self._rows(obs), info

    def step(self, action: Any) -> Any:
        obs, *rest = self.env.step(action if self.actions is None else self.actions.own(np.atleast_1d(action)))
        return self._rows(obs), *rest

    def _rows(self, obs: Any) -> Any:
        return obs if self.observations is None else self.observations.rows(obs)

    @property
    def replaces_bounds(self) -> bool:
        """Whether some of the environment's action bounds are infinite."""
        boxes = [each for each in _basic_spaces(self.env.action_space) if isinstance(each, spaces.Box)]
        return not all(each.is_bounded() for each in boxes)

    def described(self, spec: EnvSpec) -> EnvSpec:
        """Returns the spec with the environment's own spaces, where the spec alone does not imply them."""
        if self.observations is not None:
            implied = _is_implied(self.observations.space)
            mask = self.observations.place_of(KEY) if isinstance(self.env, ActionMasks) else None
            spec = replace(
                spec, obs_parts=self.observations.parts, action_mask=mask,
                obs_space=None if implied else dict(self.observations.space),
            )  # fmt: skip
        return spec if self.actions is None else replace(spec, action_space=dict(self.actions.space))


def with_library_spaces(
    env: gym.Env[Any, Any], like: EnvSpec | None = None, action_range: Bounds | None = None
) -> gym.Env[Any, Any]:
    """Wraps an environment whose spaces differ from the library's.

    `like` is the spec of a run to continue or evaluate. Runs of versions that passed arrays on as they are keep that
    form, and bounds that replace infinite ones are those of the run. Without a run they are `action_range`.
    """
    notes: list[str] = []
    observations = _observations(env.observation_space, like, notes)
    if like is not None and like.action_low:
        action_range = like.action_low, like.action_high
    actions, action_space = _actions(env.action_space, action_range, notes)
    if observations is None and action_space is env.action_space:
        return env
    return LibrarySpaces(env, observations, actions, action_space, notes)


def _observations(space: spaces.Space[Any], like: EnvSpec | None, notes: list[str]) -> Observations | None:
    if isinstance(space, spaces.Box) and (_is_plain(space) or (like is not None and _is_kept(space, like))):
        return None
    description = describe(space)
    texts = _texts(description)
    if not list(leaves(description)):
        raise TypeError(f"the observation space {space} has nothing to learn from; {_advice('TransformObservation')}")
    if texts:
        notes.append(f"text in observations is left out: {', '.join(texts)}")
    return Observations(description)


def _is_plain(space: spaces.Box) -> bool:
    """Whether observations of a Box need no conversion; float64 becomes float32 when they are stored."""
    if space.dtype == np.uint8:
        return image_layout(space.shape) == "CHW"
    return space.dtype.kind == "f" and len(space.shape) == 1 and space.shape[0] > 0


def _is_kept(space: spaces.Box, like: EnvSpec) -> bool:
    is_own_form = like.obs_space is None and not like.obs_parts and space.shape == like.obs_shape
    is_bytes = space.dtype == np.uint8
    return is_own_form and is_bytes == (like.obs_dtype == "uint8") and (is_bytes or space.dtype.kind == "f")


def _is_implied(space: Description) -> bool:
    """Whether `EnvSpec.obs_parts` implies the space: a Dict of images [channels, height, width] and float vectors."""
    if space["type"] != "Dict":
        return False
    parts = space["subspaces"].values()
    return all(
        part["type"] == "Box" and (part.get("layout") == "CHW" or np.dtype(part["dtype"]).kind == "f") for part in parts
    ) and any("layout" in part for part in parts)


def _texts(space: Description, path: tuple[str, ...] = ()) -> list[str]:
    if space["type"] == "Text":
        return ["/".join(path) or "obs"]
    parts = space.get("subspaces", {})
    items = parts.items() if isinstance(parts, Mapping) else enumerate(parts)
    return [text for key, each in items for text in _texts(each, (*path, str(key)))]


def describe(space: spaces.Space[Any], *, actions: bool = False) -> dict[str, Any]:
    """Returns the JSON description of a space; raises TypeError for an unsupported one.

    With `actions`, it includes the bounds of integer Boxes, whose values are choices, and of float64 Boxes, because
    float32 would round them.
    """
    if isinstance(space, spaces.Dict):
        wrong = next((name for name in space.spaces if not isinstance(name, str)), None)
        if wrong is not None:
            raise TypeError(f"the keys of a Dict space must be strings, got {wrong!r}")
        return {
            "type": "Dict",
            "subspaces": {name: describe(each, actions=actions) for name, each in space.spaces.items()},
        }
    if isinstance(space, spaces.Tuple):
        return {"type": "Tuple", "subspaces": [describe(each, actions=actions) for each in space.spaces]}
    if isinstance(space, spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start), "dtype": str(np.dtype(space.dtype))}
    if isinstance(space, spaces.MultiDiscrete):
        values = {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
        return {"type": "MultiDiscrete", **values, "dtype": str(space.dtype)}
    if isinstance(space, spaces.MultiBinary):
        return {"type": "MultiBinary", "shape": list(space.shape)}
    if isinstance(space, spaces.Box) and space.dtype.kind in "biuf" and 0 not in space.shape:
        layout = image_layout(space.shape) if space.dtype == np.uint8 else None
        box = {"type": "Box", "dtype": str(space.dtype), "shape": list(space.shape)}
        if actions and space.dtype.kind != "f":
            return {**box, "low": space.low.astype(int).tolist(), "high": space.high.astype(int).tolist()}
        if actions and space.dtype == np.float64 and space.is_bounded():
            return {**box, "low": space.low.tolist(), "high": space.high.tolist()}
        return box if layout is None else {**box, "layout": layout}
    if space.dtype is not None and np.dtype(space.dtype).kind == "U":  # Text, MiniGrid's missions
        return {"type": "Text"}
    raise TypeError(
        f"the space {space} is not supported; {_advice('TransformAction' if actions else 'TransformObservation')}"
    )


def _advice(wrapper: str) -> str:
    return f"wrap the environment with gymnasium.wrappers.{wrapper}"


def image_layout(shape: tuple[int, ...]) -> str | None:
    """The axes of a uint8 array as letters, such as "HWC", or None if it is not an image.

    An image has 2 axes, 3 axes (with channels first or last) or 4 axes (a stack of N such images), and at least 5x5
    pixels. The two sides of equal length are height and width; without them the shorter of the first and the last
    axis are the channels.
    """
    if len(shape) == 4:
        frame = image_layout(shape[1:])
        return None if frame is None else f"N{frame}"
    if len(shape) == 2:
        return "HW" if min(shape) >= MIN_SIDE else None
    if len(shape) != 3:
        return None
    first, middle, last = shape
    if first != last and middle in (first, last):
        layout = "CHW" if middle == last else "HWC"
    else:
        layout = "CHW" if first <= last else "HWC"
    sides = shape[1:] if layout == "CHW" else shape[:2]
    return layout if min(sides) >= MIN_SIDE else None


def _actions(
    space: spaces.Space[Any], action_range: Bounds | None, notes: list[str]
) -> tuple[Actions | None, spaces.Space[Any]]:
    """Returns the converter, if one is needed, and the action space of the library."""
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return None, space
    if isinstance(space, spaces.Box) and 0 in space.shape:
        raise TypeError(f"the action space {space} has no entries; {_advice('TransformAction')}")
    if isinstance(space, spaces.Box) and space.dtype.kind == "f":
        return None, _bounded(space, action_range, notes)
    parts = list(_basic_spaces(space))
    is_float = [isinstance(each, spaces.Box) and each.dtype.kind == "f" for each in parts]
    if not parts or (any(is_float) and not all(is_float)):
        raise TypeError(
            "actions must be numbers (Boxes of floats) or choices (Discrete, MultiDiscrete, MultiBinary), not both, "
            f"got {space}; {_advice('TransformAction')}"
        )
    if all(is_float):
        low, high = (np.concatenate([np.ravel(getattr(each, name)) for each in parts]) for name in ("low", "high"))
        flat = spaces.Box(low.astype(np.float32), high.astype(np.float32))
        return Actions(describe(space, actions=True)), _bounded(flat, action_range, notes)
    for each in parts:
        _require_few_choices(each)
    actions = Actions(describe(space, actions=True))
    sizes, starts = (np.concatenate([getattr(leaf, name) for leaf in actions.leaves]) for name in ("sizes", "starts"))
    if len(sizes) == 1:
        return actions, spaces.Discrete(int(sizes[0]), start=int(starts[0]))
    return actions, spaces.MultiDiscrete(sizes, start=starts)


def _basic_spaces(space: spaces.Space[Any]) -> Iterator[spaces.Space[Any]]:
    """Yields the parts of a space in the order of `leaves`."""
    if isinstance(space, spaces.Dict):
        for name in sorted(space.spaces, key=str):
            yield from _basic_spaces(space.spaces[name])
    elif isinstance(space, spaces.Tuple):
        for each in space.spaces:
            yield from _basic_spaces(each)
    else:
        yield space


def _require_few_choices(space: spaces.Space[Any]) -> None:
    if not isinstance(space, spaces.Box):
        return
    with np.errstate(over="ignore"):
        span = (space.high.astype(np.float64) - space.low.astype(np.float64)).max(initial=0)
    if span >= MAX_CHOICES:
        raise TypeError(
            f"each entry of an integer Box of actions may have at most {MAX_CHOICES} values, got {space}; "
            f"{_advice('TransformAction')}, for example with a Box of floats that it rounds"
        )


def _bounded(space: spaces.Box, action_range: Bounds | None, notes: list[str]) -> spaces.Box:
    """Replaces infinite bounds: by `action_range`, or else so that the range is [-1, 1] or has the width 2."""
    low, high = (bound.astype(np.float64).ravel() for bound in (space.low, space.high))
    if np.isfinite(low).all() and np.isfinite(high).all():
        return space
    if action_range is not None:
        lower, upper = (np.array(per_dimension(bound, len(low))) for bound in action_range)
    else:
        lower = np.where(np.isfinite(high), high - 2, -1)
        upper = np.where(np.isfinite(low), low + 2, 1)
    lower, upper = np.where(np.isfinite(low), low, lower), np.where(np.isfinite(high), high, upper)
    open_ended = ~(np.isfinite(low) & np.isfinite(high))
    if (lower >= upper).any():
        raise ValueError(f"action_range must be [low, high] with low < high, within the bounds of {space}")
    ranges = sorted({f"[{lower[i]:g}, {upper[i]:g}]" for i in np.flatnonzero(open_ended)})
    notes.append(
        f"{open_ended.sum()} of {len(low)} action bounds are infinite; actions are limited to {', '.join(ranges)} there"
    )
    lower, upper = (bound.reshape(space.shape).astype(space.dtype) for bound in (lower, upper))
    return spaces.Box(lower, upper, dtype=np.dtype(space.dtype).type)
