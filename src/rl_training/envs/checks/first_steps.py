"""Checks the spaces of an environment, its first steps in a run, and values of unusual types in later ones."""

from collections.abc import Iterable, Iterator
from typing import Any

import gymnasium as gym

from rl_training.envs.checks.returned import (
    Fault,
    action_space_faults,
    late_mask_faults,
    obs_faults,
    outcome_faults,
    signature_faults,
    split_reset,
    split_step,
    step_faults,
)
from rl_training.envs.checks.user_code import (
    Place,
    has_user_code,
    place_of_attribute,
    place_of_error,
    place_of_method,
    user_env,
)
from rl_training.messages import Warn, describe_error

CHECKED_STEPS = 5
WARNED: set[tuple[Any, ...]] = set()  # code and place
LATER = ("obs_nan", "reward_nan")  # the pool reports these in every step


class EnvFault(Exception):
    """An environment returned a value that training cannot use."""


def space_faults(env: Any) -> Iterator[tuple[Fault, Place | None]]:
    """Yields what is wrong with the two spaces of an environment, and the line of the user's code."""
    for name in ("observation_space", "action_space"):
        space = getattr(env, name, None)
        if space is None:
            sentence = f"the environment has no {name}: set self.{name} in __init__"
            yield Fault(f"space:{name}", sentence), place_of_method(env, "__init__")
        elif not isinstance(space, gym.Space):
            sentence = f"{name} is of the type {type(space).__name__}, not a space: use one of gymnasium.spaces"
            yield Fault(f"space:{name}", sentence), place_of_attribute(env, name)


def require_spaces(env: gym.Env[Any, Any]) -> None:
    """Raises TypeError with the first fault of the spaces."""
    for fault, place in space_faults(user_env(env)):
        raise TypeError(located(fault, place))


def check_first_steps(env: gym.Env[Any, Any], warn: Warn) -> None:
    """Makes a user's environment check its first values: the first observation and `CHECKED_STEPS` steps.

    Its methods are replaced for these calls only, so that later steps are as fast as without the check. A value that
    training cannot use raises EnvFault; other faults are warnings, each once in this process.
    """
    core = user_env(env)
    own = getattr(core, "__dict__", None)
    if own is not None and "step" not in own and "reset" not in own and has_user_code(core):
        checked = FirstSteps(core, own, warn)
        own["reset"], own["step"] = checked.reset, checked.step


class FirstSteps:
    """Replaces `reset` and `step` of an environment in its first calls; `own` are the attributes of the object."""

    def __init__(self, env: Any, own: dict[str, Any], warn: Warn) -> None:
        self.env, self.own, self.warn, self.remaining = env, own, warn, CHECKED_STEPS
        self._reset, self._step = env.reset, env.step
        self.first_info: Any = None

    def reset(self, *arguments: Any, **options: Any) -> Any:
        self.own.pop("reset", None)
        self.report("reset", [fault for fault in signature_faults(self._reset) if fault.fatal])
        result = self._reset(*arguments, **options)
        self.first_info = result[1] if isinstance(result, tuple) and len(result) == 2 else None
        obs, faults = split_reset(result, self.env.observation_space)
        faults += training_faults(obs_faults(obs, self.env.observation_space, "reset"))
        self.report("reset", faults)
        return result

    def step(self, action: Any) -> Any:
        self.remaining -= 1
        if not self.remaining:
            self.own.pop("step", None)
        result = self._step(action)
        values, faults = split_step(result)
        if values is not None:
            faults += training_faults(step_faults(values, self.env.observation_space))
            faults += late_mask_faults(self.env.action_space, self.first_info, values)
        self.report("step", faults)
        return result

    def report(self, method: str, faults: Iterable[Fault]) -> None:
        for fault in faults:
            place = place_of_method(self.env, method)
            sentence = located(fault, place)
            if fault.fatal:
                raise EnvFault(sentence)
            warn_once(fault, place or type(self.env), sentence, self.warn)


def warn_once(fault: Fault, place: Any, sentence: str, warn: Warn) -> None:
    if (fault.code, place) not in WARNED:
        WARNED.add((fault.code, place))
        warn(sentence)


def warn_of_changed_actions(env: Any, before: Any, warn: Warn) -> None:
    """Warns if a reset has changed the action space of the user's environment."""
    for fault in action_space_faults(before, env.action_space, "reset"):
        place = place_of_method(env, "reset")
        warn_once(fault, place or type(env), located(fault, place), warn)


def require_outcome(env: Any, reward: Any, terminated: Any, truncated: Any) -> None:
    """Raises EnvFault for a reward or a flag that training cannot use."""
    for fault in training_faults(outcome_faults(reward, terminated, truncated)):
        raise EnvFault(located(fault, place_of_method(env, "step")))


def located(fault: Fault, place: Place | None) -> str:
    """The sentence of a fault with the file and line of the method, if known."""
    return fault.sentence if place is None else f"{fault.sentence} ({place})"


def training_faults(faults: Iterable[Fault]) -> list[Fault]:
    """Leaves out what training converts by itself, and what the pool reports."""
    return [fault for fault in faults if fault.code not in LATER and (fault.fatal or fault.code == "obs_bounds")]


def describe_failure(error: BaseException) -> str:
    """Returns the class and message of an error, and the line of the user's code that raised it."""
    place = place_of_error(error)
    return describe_error(error) if place is None else f"{describe_error(error)} ({place})"
