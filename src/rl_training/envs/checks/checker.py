"""Checks an environment and reports each mistake in one sentence, with the line of the user's code."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.data.replay.goals import KEYS
from rl_training.envs import snapshots
from rl_training.envs.checks.env_source import EnvSource
from rl_training.envs.checks.first_steps import space_faults
from rl_training.envs.checks.gymnasium_check import run_gymnasium_check
from rl_training.envs.checks.probing import (
    SEED,
    Finding,
    Findings,
    Pace,
    Probe,
    Stop,
    call,
    explore,
    same,
    time_limit_of,
)
from rl_training.envs.checks.returned import signature_faults
from rl_training.envs.checks.user_code import has_user_code, place_of_attribute, place_of_method, user_env
from rl_training.envs.creation.making import EnvFactory, make_env, spec_of
from rl_training.envs.creation.wrapping import Wrapper
from rl_training.envs.goals import GoalRewards
from rl_training.envs.interrupts import CallLimit, CallTimeout
from rl_training.envs.masks import KEY
from rl_training.envs.pools.group import EnvError
from rl_training.envs.spec import env_spec_of

STEPS, SECONDS = 500, 30.0
COMPARED_STEPS = 100
REPRODUCIBLE = ("reset_seed", "step_seed", "instance_seed", "reset_signature", "raised", "timeout")


class EnvReport(NamedTuple):
    """Result of `check_env`. `ok` is true without mistakes; notes are only remarks."""

    name: str
    mistakes: list[Finding]
    notes: list[Finding]
    pace: Pace | None  # None: no step could be taken
    resume: str | None
    workers: str

    @property
    def ok(self) -> bool:
        return not self.mistakes

    def to_json(self) -> dict[str, Any]:
        pace = self.pace or Pace(0, 0, 0.0)
        return {
            "env": self.name, "ok": self.ok,
            "mistakes": [_finding_json(each) for each in self.mistakes],
            "notes": [_finding_json(each) for each in self.notes],
            "steps": pace.steps, "episodes": pace.episodes, "steps_per_second": pace.steps_per_second,
            "resume": self.resume, "env_workers": self.workers,
        }  # fmt: skip


def _finding_json(finding: Finding) -> dict[str, Any]:
    file, line = finding.place or (None, None)
    return {"code": finding.code, "sentence": finding.sentence, "file": file, "line": line}


def check_env(
    env: Any, *, env_kwargs: Mapping[str, Any] | None = None, wrappers: Wrapper | Sequence[Wrapper] = (),
    steps: int = STEPS, timeout: float = SECONDS,
) -> EnvReport:  # fmt: skip
    """Checks an environment: an id, an object, a class or a function that returns one, with `wrappers` around it.

    Steps it with random actions, resets it with the same seed twice, and runs Gymnasium's own checker. A call that
    takes longer than `timeout` seconds is interrupted. The report lists every mistake with its file and line.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    if not timeout > 0:
        raise ValueError(f"timeout must be greater than 0 seconds, got {timeout}")
    check = Check(EnvSource(env, dict(env_kwargs or {}), wrappers), steps, CallLimit(timeout))
    with check.limit.watching(), suppress(Stop):
        try:
            check.run()
        finally:
            check.close()
    found = check.found
    return EnvReport(check.source.name, found.mistakes, found.notes, check.pace, check.resume(), check.source.workers())


class Check:
    """The parts of a check, in their order. A part that cannot continue raises `Stop`."""

    def __init__(self, source: EnvSource, steps: int, limit: CallLimit) -> None:
        self.source, self.steps, self.limit = source, steps, limit
        self.found = Findings()
        self.pace: Pace | None = None
        self.made: list[Any] = []

    def run(self) -> None:
        env = self.make()
        inner = user_env(env)
        self.check_spaces(inner)
        self.check_conversion(env)
        self.check_signatures(inner)
        probe = Probe(inner, self.found, self.limit)
        try:
            self.pace = explore(probe, self.steps, time_limit_of(env))
        finally:
            if isinstance(inner, gym.Wrapper) and self.found.mistakes:
                self.find_wrapped_mistakes(inner)
        self.check_seeds(probe)
        self.check_goals(inner)
        if self.source.makes_new and probe.masks is None:  # Gymnasium's checker takes actions that a mask forbids
            run_gymnasium_check(user_env(self.make()), self.found, self.limit)

    def make(self) -> Any:
        with self.limit:
            env = self.source.make(self.found)
        if not self.made or self.made[-1] is not env:
            self.made.append(env)
        return env

    def check_spaces(self, env: Any) -> None:
        for fault, place in space_faults(env):
            self.found.add(fault.code, fault.sentence, place)
        if self.found.mistakes:
            raise Stop
        if _is_infinite(env.observation_space):
            sentence = "observation_space has infinite bounds; this is allowed (normalize_obs scales large values)"
            self.found.add("infinite_bounds", sentence, place_of_attribute(env, "observation_space"), mistake=False)

    def check_conversion(self, env: Any) -> None:
        """Checks that the library supports the spaces."""
        try:
            env_spec_of(make_env(lambda: env, {}))
        except (TypeError, ValueError) as error:
            name = "action_space" if "action" in str(error) and KEY not in str(error) else "observation_space"
            self.found.add("unsupported_space", str(error), place_of_attribute(user_env(env), name))

    def check_signatures(self, env: Any) -> None:
        for fault in signature_faults(env.reset):
            self.found.add(fault.code, fault.sentence, place_of_method(env, "reset"))

    def find_wrapped_mistakes(self, env: Any) -> None:
        inner = Findings()
        with suppress(Stop):
            explore(Probe(user_env(env.env), inner, self.limit), min(self.steps, COMPARED_STEPS), None)
        self.found.move(inner)

    def check_seeds(self, probe: Probe) -> None:
        """Compares two episodes of the same seed and actions, and those of a new instance."""
        if not probe.takes_seed:
            return
        count = min(self.steps, COMPARED_STEPS)
        first = probe.play(count)
        self.check_super_reset(probe.env)
        used = GlobalNumbers(probe.env)
        again = probe.play(count)
        spec = getattr(probe.env, "spec", None)
        mistake = not getattr(spec, "nondeterministic", False)
        if not same(first.first, again.first):
            sentence = f"two resets with the same seed gave different observations: {used.advice()}"
            self.found.add("reset_seed", sentence, place_of_method(probe.env, "reset"), mistake=mistake)
        elif not same(first.steps, again.steps):
            pairs = zip(first.steps, again.steps, strict=False)  # one episode may be shorter
            number = next((number for number, pair in enumerate(pairs, 1) if not same(*pair)), len(again.steps))
            sentence = f"step {number} differs after the same seed and actions: {used.advice()}"
            self.found.add("step_seed", sentence, place_of_method(probe.env, "step"), mistake=mistake)
        elif self.source.makes_new:
            new = Probe(user_env(self.make()), self.found, self.limit).play(count)
            if not same((new.first, new.steps), (first.first, first.steps)):
                sentence = (
                    "a new instance gives other values after the same seed and actions: make `__init__` repeatable"
                )
                self.found.add("instance_seed", sentence, place_of_method(probe.env, "__init__"), mistake=mistake)

    def check_goals(self, env: Any) -> None:
        """Checks `compute_reward` of a goal-conditioned environment, which only hindsight needs."""
        space = env.observation_space
        if self.found.mistakes or not self.source.makes_new or not isinstance(space, spaces.Dict):
            return
        if not set(KEYS) <= set(space.spaces):
            return
        source = EnvFactory(lambda: self.source.make(self.found), name=self.source.name)
        try:
            with self.limit:
                source = source.with_masks()
                GoalRewards(source, spec_of(source))
        except CallTimeout:
            pass
        except (ValueError, EnvError) as error:
            sentence = f"hindsight cannot be used: {error}"
            self.found.add("goals", sentence, place_of_method(env, "compute_reward"), mistake=False)

    def check_super_reset(self, env: Any) -> None:
        core = env.unwrapped
        if has_user_code(core) and getattr(core, "_np_random_seed", SEED) not in (SEED, -1):
            sentence = "`reset` does not call super().reset(seed=seed), so self.np_random is not seeded: call it first"
            self.found.add("super_reset", sentence, place_of_method(core, "reset"))

    def resume(self) -> str | None:
        """Describes whether a resumed run continues the running episode exactly."""
        if self.pace is None:
            return None
        if snapshots.is_exact_for(self.made[0]) and self.source.is_id:
            return "exact: the state of the environment is saved"
        if any(code in self.found for code in REPRODUCIBLE):
            return "not exact: a replayed episode would differ, so a resumed run starts new episodes"
        return "exact: an episode is replayed from its seed and actions"

    def close(self) -> None:
        for env in self.made if self.source.makes_new else ():
            with suppress(Stop):
                call(env, "close", env.close, found=self.found, limit=self.limit)


class GlobalNumbers:
    """Detects random numbers that `reset(seed=…)` does not control."""

    def __init__(self, env: Any) -> None:
        self.spaces = {name: getattr(env, name) for name in ("observation_space", "action_space")}
        self.before = self.states()

    def states(self) -> dict[str, Any]:
        sampled = {f"self.{name}.sample()": copy.deepcopy(space._np_random) for name, space in self.spaces.items()}
        return {
            "NumPy's global generator (np.random)": str(np.random.get_state()),
            "Python's module random": random.getstate(),
            **{name: None if each is None else str(each.bit_generator.state) for name, each in sampled.items()},
        }

    def advice(self) -> str:
        used = [name for name, state in self.states().items() if state != self.before[name]]
        wrong = f"it uses {' and '.join(used)}; " if used else ""
        return f"{wrong}take all random numbers from self.np_random and set all state in `reset`"


def _is_infinite(space: Any) -> bool:
    if isinstance(space, spaces.Box):
        return not space.is_bounded()
    inner = space.spaces if isinstance(space, (spaces.Dict, spaces.Tuple)) else ()
    return any(map(_is_infinite, inner.values() if isinstance(inner, Mapping) else inner))
