"""Calls an environment that may be wrong in any way, and records each mistake with its place."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TimeLimit

from rl_training.envs.checks.first_steps import EnvFault
from rl_training.envs.checks.returned import (
    Fault,
    accepts,
    action_space_faults,
    late_mask_faults,
    obs_faults,
    split_reset,
    split_step,
    step_faults,
)
from rl_training.envs.checks.user_code import Place, is_raised_here, place_of_error, place_of_method
from rl_training.envs.interrupts import CallLimit, CallTimeout
from rl_training.envs.masks import KEY, ActionMasks, masks_of
from rl_training.messages import describe_error

SEED = 0
PATIENCE = 10  # times the steps asked for are taken if no episode has ended


class Finding(NamedTuple):
    code: str
    sentence: str
    place: Place | None = None
    is_mistake: bool = True  # False: a note

    def __str__(self) -> str:
        return self.sentence if self.place is None else f"{self.place}: {self.sentence}"


class Stop(Exception):
    """The environment cannot be used further; the reason is among the findings."""


class Findings:
    """Collects findings, one of each kind and method, and one of each kind and place."""

    def __init__(self) -> None:
        self._found: dict[str, Finding] = {}

    def add(self, code: str, sentence: str, place: Place | None, *, mistake: bool = True) -> None:
        kind = code.partition(":")[0]
        if not any(each.place == place and each.code.partition(":")[0] == kind for each in self._found.values()):
            self._found.setdefault(code, Finding(code, sentence, place, mistake))

    @property
    def mistakes(self) -> list[Finding]:
        return [each for each in self._found.values() if each.is_mistake]

    @property
    def notes(self) -> list[Finding]:
        return [each for each in self._found.values() if not each.is_mistake]

    def __contains__(self, code: str) -> bool:
        return any(each == code or each.startswith(f"{code}:") for each in self._found)

    def move(self, inner: Findings) -> None:
        """Uses the places of `inner`, the findings in the wrapped environment, for mistakes that occur in both."""
        for code in self._found.keys() & inner._found.keys():
            self._found[code] = self._found[code]._replace(place=inner._found[code].place)


def call(
    env: Any, name: str, function: Callable[..., Any], *arguments: Any, found: Findings, limit: CallLimit,
    **options: Any,
) -> Any:  # fmt: skip
    """Calls a method of an environment; an error, or a call that takes too long, is recorded and raises `Stop`."""
    try:
        with limit:
            return function(*arguments, **options)
    except KeyboardInterrupt:
        raise
    except CallTimeout as error:
        sentence = f"`{name}` did not return within {limit.seconds:g} seconds"
        found.add(f"timeout:{name}", sentence, place_of_error(error) or place_of_method(env, name))
    except BaseException as error:  # also SystemExit, but not that of a signal to this program
        if isinstance(error, SystemExit) and is_raised_here(error):
            raise
        place = place_of_error(error) or place_of_method(env, name)
        found.add(f"raised:{name}", f"`{name}` raised {describe_error(error)}", place)
    raise Stop


class Trial(NamedTuple):
    """The values that an environment returned after one seed and one sequence of actions."""

    first: Any
    steps: list[tuple[Any, ...]]  # observation, reward, terminated, truncated


class Probe:
    """Calls the methods of one environment and records every mistake."""

    def __init__(self, env: Any, found: Findings, limit: CallLimit) -> None:
        self.env, self.found, self.limit = env, found, limit
        self.takes_seed = accepts(env.reset, "seed")
        self.seconds = 0.0  # in `step`
        self._kept: list[tuple[Any, Any]] = []  # the last observation and a copy of it
        self.masks: ActionMasks | None = None
        self._valid: np.ndarray | None = None  # mask of the next action
        self._first_info: Any = None  # of the last reset
        self._resets, self._actions = 0, copy.deepcopy(env.action_space)  # the space before the next call

    def call(self, name: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return call(self.env, name, function, *arguments, found=self.found, limit=self.limit, **options)

    def record(self, method: str, faults: Iterable[Fault]) -> None:
        for fault in faults:
            self.found.add(f"{fault.code}:{method}", fault.sentence, place_of_method(self.env, method))

    def reset(self, seed: int | None = None) -> Any:
        options = {} if seed is None or not self.takes_seed else {"seed": seed}
        result = self.call("reset", self.env.reset, **options)
        obs, faults = split_reset(result, self.env.observation_space)
        self.record("reset", [*faults, *obs_faults(obs, self.env.observation_space, "reset")])
        self._compare_actions("reset")
        self._compare_kept("reset")
        self._kept = [(obs, _copy(obs))]
        self._resets += 1
        info = self._first_info = result[1] if isinstance(result, tuple) and len(result) == 2 else None
        if self._resets == 1:
            self.masks = masks_of(self.env, info)
        self._read_mask("reset", obs, info)
        return obs

    def step(self, action: Any) -> tuple[Any, ...]:
        given, began = _copy(action), time.perf_counter()
        result = self.call("step", self.env.step, action)
        self.seconds += time.perf_counter() - began
        if not same(given, action):
            sentence = "`step` changes the action that it was given: change a copy, action.copy()"
            self.found.add("action_changed", sentence, place_of_method(self.env, "step"), mistake=False)
        values, faults = split_step(result)
        self.record("step", faults)
        if values is None:
            raise Stop
        self.record("step", step_faults(values, self.env.observation_space))
        self.record("step", late_mask_faults(self.env.action_space, self._first_info, values))
        self._compare_actions("step")
        self._compare_kept("step")
        self._kept = [(values[0], _copy(values[0]))]
        self._read_mask("step", values[0], values[4], ended=ended(values))
        return values

    def sample(self, space: Any) -> Any:
        """Samples an action of the space that the last mask allows."""
        return space.sample() if self.masks is None else self.masks.sample(space, self._valid)

    def _read_mask(self, method: str, obs: Any, info: Any, *, ended: bool = False) -> None:
        self._valid = None
        if self.masks is None or not isinstance(info, dict):
            return
        self.masks.steps = 0 if method == "reset" else self.masks.steps + 1
        try:
            self._valid = np.ravel(self.masks.masked(obs, info, ended=ended)[KEY])
        except EnvFault as fault:
            self.found.add(f"action_mask:{method}", str(fault), place_of_method(self.env, method))
            raise Stop from fault  # the next action might be an invalid one
        except (KeyError, TypeError, IndexError, ValueError):  # the observation has another form, which is reported
            pass

    def _compare_actions(self, method: str) -> None:
        self.record(method, action_space_faults(self._actions, self.env.action_space, method))
        self._actions = copy.deepcopy(self.env.action_space)

    def _compare_kept(self, method: str) -> None:
        if self._kept and not same(*self._kept[0]):
            sentence = f"`{method}` changes the observation that was returned before: return a copy, obs.copy()"
            self.found.add("aliasing", sentence, place_of_method(self.env, method))

    def play(self, count: int) -> Trial:
        """Takes `count` random actions after a reset with the seed, up to the end of the episode."""
        sampler = copy.deepcopy(self.env.action_space)
        sampler.seed(SEED)
        first, steps = _copy(self.reset(SEED)), []
        for _ in range(count):
            values = self.step(self.sample(sampler))
            steps.append(_copy(values[:4]))
            if ended(values):
                break
        return Trial(first, steps)


class Pace(NamedTuple):
    steps: int
    episodes: int
    seconds: float

    @property
    def steps_per_second(self) -> float:
        return self.steps / max(self.seconds, 1e-9)


def explore(probe: Probe, steps: int, time_limit: int | None) -> Pace:
    """Steps with random actions over several episodes, which `time_limit` cuts."""
    sampler = copy.deepcopy(probe.env.action_space)
    sampler.seed(SEED)
    taken = episodes = length = 0
    probe.reset(SEED)
    patience = steps if time_limit else PATIENCE * steps
    while taken < steps or (not episodes and taken < patience and probe.seconds < probe.limit.seconds):
        values = probe.step(probe.sample(sampler))
        taken, length = taken + 1, length + 1
        if ended(values) or length == time_limit:
            episodes, length = episodes + 1, 0
            probe.reset()
        if probe.seconds > probe.limit.seconds:
            break
    if not episodes and not time_limit:
        sentence = (
            f"no episode ended in {taken:,} steps: return truncated=True at a time limit, "
            "register with max_episode_steps, or wrap with gymnasium.wrappers.TimeLimit"
        )
        probe.found.add("never_ends", sentence, place_of_method(probe.env, "step"))
    return Pace(taken, episodes, probe.seconds)


def _copy(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:  # values of a wrong type may have no copy
        return None


def ended(values: tuple[Any, ...]) -> bool:
    try:
        return bool(values[2]) or bool(values[3])
    except ValueError:  # an array, which is a mistake of its own
        return bool(np.any(values[2]) or np.any(values[3]))


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal bit by bit; NaN equals NaN."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(map(same, one, other))
    try:
        first, second = np.asarray(one), np.asarray(other)
        return first.shape == second.shape and bool(np.array_equal(first, second, equal_nan=first.dtype.kind == "f"))
    except (TypeError, ValueError):
        return bool(one == other)


def time_limit_of(env: Any) -> int | None:
    """Returns the limit of the first TimeLimit wrapper."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, TimeLimit):
            return int(env._max_episode_steps)
        env = env.env
    return None
