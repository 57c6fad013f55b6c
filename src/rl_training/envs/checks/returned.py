"""Checks the signature of `reset` and the values that `reset` and `step` return; each fault is one sentence."""

import inspect
import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from rl_training.messages import many

WANTED = "obs, reward, terminated, truncated, info"
LARGEST_REWARD = float(np.finfo(np.float32).max)
FINITE = "; return finite numbers, or end the episode before them"  # the fix for NaN and infinite values
INFO_MASKS = ("action_mask", "action_masks")  # keys of `info` with a mask of valid actions
SMALLER = "; scale the rewards down"


class Fault(NamedTuple):
    code: str
    sentence: str
    fatal: bool = True  # training cannot use the value


def signature_faults(reset: Any) -> list[Fault]:
    missing = [name for name in ("seed", "options") if not accepts(reset, name)]
    if not missing:
        return []
    fix = "write def reset(self, *, seed=None, options=None)"
    return [Fault("reset_signature", f"`reset` does not take {' and '.join(missing)}: {fix}", fatal="seed" in missing)]


def accepts(function: Any, name: str) -> bool:
    """Whether a function takes a keyword argument of this name."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return True
    return name in parameters or any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())


def action_space_faults(before: Any, now: Any, method: str) -> Iterator[Fault]:
    """Yields a fault if the action space has changed; `method` was called last."""
    if now is not before and now != before:
        mask = "" if isinstance(before, spaces.Box) else "; mark actions that are not valid now with an action mask"
        fix = f"set it in `__init__` and keep it{mask}"
        sentence = f"action_space was {before} and is {now} after `{method}`, but an agent keeps the first one: {fix}"
        yield Fault("action_space_changed", sentence, fatal=False)


def late_mask_faults(space: Any, first: Any, values: tuple[Any, ...]) -> list[Fault]:
    """Returns a fault if `step` returned `values` with a mask in info, but `reset` had none in its info, `first`."""
    masked = [isinstance(info, dict) and any(info.get(key) is not None for key in INFO_MASKS)
              for info in (first, values[4])]  # fmt: skip
    in_obs = isinstance(values[0], Mapping) and INFO_MASKS[0] in values[0]
    if in_obs or masked != [False, True] or not isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return []
    sentence = "`step` returns an action mask in info, but `reset` does not, so masks are not used: return it from both"
    return [Fault("late_mask", sentence, fatal=False)]


def split_reset(result: Any, space: Any) -> tuple[Any, list[Fault]]:
    """Returns the observation and the faults of the form."""
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
        return result[0], []
    if isinstance(result, tuple) and not _contains(space, result):
        if len(result) == 2:
            sentence = f"`reset` returned {_kind(result[1])} as info; Gymnasium expects a dict: return obs, {{}}"
            return result[0], [Fault("info", sentence, fatal=False)]
        sentence = f"`reset` returned {many(len(result), 'value')}; Gymnasium expects 2: obs, info"
        return (result or (None,))[0], [Fault("reset_values", sentence)]
    what = "nothing" if result is None else "only the observation"
    return result, [Fault("reset_values", f"`reset` returned {what}; Gymnasium expects 2 values: return obs, {{}}")]


def split_step(result: Any) -> tuple[tuple[Any, ...] | None, list[Fault]]:
    """Returns the five values, also for the four of the old form, or None; and the faults of the form."""
    if isinstance(result, (tuple, list)) and len(result) == 5:
        if isinstance(result, tuple):
            return result, []
        return tuple(result), [Fault("step_values", f"`step` returned a list; return a tuple: {WANTED}", fatal=False)]
    if not isinstance(result, (tuple, list)):
        what = "nothing" if result is None else _kind(result)
        return None, [Fault("step_values", f"`step` returned {what}; Gymnasium expects 5 values: {WANTED}")]
    fault = Fault("step_values", f"`step` returned {len(result)} values; Gymnasium expects 5: {WANTED}")
    if len(result) != 4:
        return None, [fault]
    obs, reward, done, info = result
    return (obs, reward, done, False, info), [fault]


def step_faults(values: tuple[Any, ...], space: Any) -> Iterator[Fault]:
    """Yields the faults of the values that `split_step` returns."""
    obs, reward, terminated, truncated, info = values
    yield from obs_faults(obs, space, "step")
    yield from outcome_faults(reward, terminated, truncated)
    if not isinstance(info, dict):
        sentence = f"`step` returned {_kind(info)} as info; Gymnasium expects a dict, such as {{}}"
        yield Fault("info", sentence, fatal=False)


def outcome_faults(reward: Any, terminated: Any, truncated: Any) -> Iterator[Fault]:
    """Yields the faults of the reward and of the two flags."""
    yield from reward_faults(reward)
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, (bool, np.bool_)):
            fix = "" if isinstance(flag, str) else f": use bool({name})"  # bool("False") is True
            sentence = f"`step` returned {_kind(flag)} as {name}; Gymnasium expects True or False{fix}"
            yield Fault(name, sentence, fatal=not _is_zero_or_one(flag) or isinstance(reward, (bool, np.bool_)))


def _is_zero_or_one(flag: Any) -> bool:
    """Whether training can use a flag that is no bool; a float may be a reward in the wrong position."""
    try:
        value = np.asarray(flag)
    except Exception:  # objects of other packages may refuse
        return False
    return not value.ndim and value.dtype.kind in "biu" and bool(value in (0, 1))


def reward_faults(reward: Any) -> Iterator[Fault]:
    if isinstance(reward, (bool, int, float, np.number, np.bool_)) and not isinstance(reward, complex):
        value = float(reward)
        if not math.isfinite(value):
            yield Fault("reward_nan", f"`step` returned a NaN or infinite reward: {value}{FINITE}")
        elif abs(value) > LARGEST_REWARD:
            yield Fault("reward_nan", f"`step` returned a reward too large for float32: {value}{SMALLER}")
        return
    fix = "return reward.item()" if np.size(reward) == 1 and isinstance(reward, np.ndarray) else "return a float"
    usable = isinstance(reward, np.ndarray) and not reward.ndim and reward.dtype.kind in "biuf"
    yield Fault("reward_type", f"`step` returned {_kind(reward)} as reward, not a number: {fix}", fatal=not usable)


def obs_faults(obs: Any, space: Any, method: str, part: str = "") -> Iterator[Fault]:
    """Yields the faults of an observation; `part` names a part of a Dict or Tuple."""
    of = f" for {part}" if part else ""
    if isinstance(space, spaces.Dict):
        yield from _dict_faults(obs, space, method, part, of)
    elif isinstance(space, spaces.Tuple):
        if not isinstance(obs, (tuple, list)) or len(obs) != len(space.spaces):
            got = _kind(obs) if not isinstance(obs, (tuple, list)) else f"{len(obs)}"
            yield Fault("obs_shape", f"`{method}` returned {got}{of}; its Tuple space has {len(space.spaces)} parts")
            return
        for number, (each, inner) in enumerate(zip(obs, space.spaces, strict=True)):
            yield from obs_faults(each, inner, method, f"{part}[{number}]" if part else f"part {number}")
    elif isinstance(space, (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)):
        yield from _array_faults(obs, space, method, of)
    elif not _contains(space, obs):
        named = _kind(obs) if np.ndim(obs) or not isinstance(obs, (int, float, str, np.generic)) else repr(obs)
        low = getattr(space, "start", 0)
        allowed = f", whose values are {low} to {low + space.n - 1}" if isinstance(space, spaces.Discrete) else ""
        yield Fault("obs_bounds", f"`{method}` returned {named}{of}, which is not in its space {space}{allowed}")


def _dict_faults(obs: Any, space: spaces.Dict, method: str, part: str, of: str) -> Iterator[Fault]:
    if not isinstance(obs, Mapping):
        keys = ", ".join(map(str, space))
        yield Fault("obs_keys", f"`{method}` returned {_kind(obs)}{of}; its space is a Dict with the keys {keys}")
        return
    for kind, names in (("without", set(space) - set(obs)), ("with", set(obs) - set(space))):
        if names:
            listed = ", ".join(map(repr, sorted(names, key=str)))
            place = "in" if kind == "without" else "not in"
            sentence = f"`{method}` returned a dict{of} {kind} the key {listed}, which is {place} observation_space"
            yield Fault("obs_keys", sentence)
    for name, inner in space.items():
        if name in obs:
            yield from obs_faults(obs[name], inner, method, f"{part}[{name!r}]" if part else f"the key {name!r}")


def _array_faults(obs: Any, space: Any, method: str, of: str) -> Iterator[Fault]:
    try:
        values = np.asarray(obs)
    except ValueError:  # lists of different lengths
        values = np.empty(0, object)
    if values.dtype.kind not in "biuf":
        sentence = f"`{method}` returned {_kind(obs)}{of}; return an array of {space.dtype} of shape {space.shape}"
        yield Fault("obs_type", sentence)
        return
    if values.shape != space.shape:
        sentence = f"`{method}` returned an observation of shape {values.shape}{of}, but its space has {space.shape}"
        yield Fault("obs_shape", sentence)
        return
    if not isinstance(obs, np.ndarray) and space.shape:
        sentence = f"`{method}` returned {_kind(obs)}{of}; return a NumPy array: np.array(obs, np.{space.dtype})"
        yield Fault("obs_type", sentence, fatal=False)
    elif values.dtype != space.dtype:
        fix = f"return obs.astype(np.{space.dtype})"
        sentence = f"`{method}` returned {values.dtype} observations{of}, but their space is {space.dtype}: {fix}"
        lost = values.dtype.kind == "f" and np.dtype(space.dtype).kind in "biu"
        yield Fault("obs_dtype", sentence, fatal=lost)
    yield from _value_faults(values, space, method, of)


def _value_faults(values: np.ndarray, space: Any, method: str, of: str) -> Iterator[Fault]:
    bad = np.argwhere(~np.isfinite(values)) if values.dtype.kind == "f" else np.empty((0, 0))
    if len(bad):
        at = "" if not len(bad[0]) else f" at index {bad[0].tolist()}"
        found = f"{values[tuple(bad[0])]}{at}{FINITE}"
        yield Fault("obs_nan", f"`{method}` returned a NaN or infinite observation{of}: {found}")
        return
    low, high = bounds_of(space)
    outside = np.argwhere((values < low) | (values > high))
    if len(outside):
        index = tuple(outside[0])
        least, most = (np.broadcast_to(bound, values.shape)[index] for bound in (low, high))
        at = "" if not len(index) else f" at index {outside[0].tolist()}"
        allowed = f"{_number(least)} to {_number(most)}"
        sentence = (
            f"`{method}` returned the observation {_number(values[index])}{at}{of}, outside its space "
            f"({allowed}): clip it or widen the bounds"
        )
        yield Fault("obs_bounds", sentence, fatal=False)


def bounds_of(space: Any) -> tuple[Any, Any]:
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return 0, 1


def _number(value: Any) -> str:
    return f"{float(value):.6g}"


def _contains(space: Any, value: Any) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a Box warns of values that are no arrays
        try:
            return bool(space.contains(value))
        except Exception:  # spaces of other packages may raise
            return False


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}" if value.dtype.kind != "O" else "an array of objects"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
