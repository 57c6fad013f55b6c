"""A pool of Gymnasium environments, stepped together in this process or in worker processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TimeLimit

from rl_training.envs import snapshots
from rl_training.envs.actions import ActionConverter, first_non_finite
from rl_training.envs.atari import AtariGame
from rl_training.envs.checks.returned import FINITE, LARGEST_REWARD, SMALLER
from rl_training.envs.checks.user_code import place_of_method
from rl_training.envs.creation.making import EnvFactory, MakeEnv, make_env
from rl_training.envs.interrupts import environment_calls
from rl_training.envs.pools.arithmetic import usual_arithmetic
from rl_training.envs.pools.group import EnvError, EnvGroup, Episode, close_env
from rl_training.envs.pools.layout import Layout
from rl_training.envs.pools.workers import MAX_RESTARTS, Workers
from rl_training.envs.spaces import LibrarySpaces
from rl_training.envs.spec import env_spec_of
from rl_training.messages import Warn, print_warning
from rl_training.types import EnvSpec


class Transition(NamedTuple):
    """One step of the pool, one row per environment."""

    next_obs: np.ndarray  # true successors: the last observation where an episode ended
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray  # never set together with terminated
    obs: np.ndarray  # observations to act on next: the first of the new episode where one ended
    finished: list[Episode]


class EnvPool:
    """Environments stepped together and reset automatically at the end of an episode.

    - Each episode is seeded by the pool's seed, the environment's index and the episode's number, so trajectories do
      not depend on the number of workers.
    - Box actions are in [-1, 1], clipped and scaled here; Discrete and MultiDiscrete actions count from 0.
    - An episode lost with its worker is truncated and is not listed in `finished`. `warn` reports the death, and
      more than `max_restarts` of them raise `TooManyRestarts`.
    - Several seeds are those of the members of a population, which share the environments equally, in order. Each
      member has the trajectories of a pool of its own.
    - `max_steps` truncates longer episodes, without workers only.
    - `training` selects the training settings of environments that have them (Atari).
    - `like` is the spec of the run that the pool is for, if it has started; see `with_library_spaces`.
    """

    on_device = False  # steps take and return arrays

    def __init__(
        self, env_id: str | MakeEnv | EnvFactory, num_envs: int = 1, *, seed: int | Sequence[int] = 0,
        env_kwargs: Mapping[str, Any] | None = None, workers: int = 0, training: bool = False,
        max_restarts: int = MAX_RESTARTS, warn: Warn = print_warning, max_steps: int | None = None,
        like: EnvSpec | None = None,
    ) -> None:  # fmt: skip
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}")
        if not 0 <= workers <= num_envs:
            raise ValueError(f"workers must be between 0 and num_envs = {num_envs}, got {workers}")
        self.source = source = EnvFactory.of(env_id, env_kwargs)
        make = partial(make_env, source, training=training, like=like)
        env = make()
        exact = not callable(source.env) and snapshots.is_exact_for(env)
        seeds = (int(seed),) if isinstance(seed, int | np.integer) else tuple(seed)
        self.layout = Layout(seeds, num_envs // len(seeds))
        self.num_envs, self.workers, self.spec = num_envs, workers, env_spec_of(env)
        self.notes = env.notes if isinstance(env, LibrarySpaces) else []  # about converted spaces, for the user
        self.replaces_bounds = isinstance(env, LibrarySpaces) and env.replaces_bounds
        self.resume_kind = "snapshot" if exact else "replay"
        self.stacks_frames = isinstance(env, AtariGame) and env.stacks_single_planes
        self._convert_actions = ActionConverter(env.action_space, self.spec, num_envs)
        self._places = {method: place_of_method(env, method) for method in ("reset", "step")}
        self._obs: np.ndarray | None = None
        self._steps, self._is_stepping = 0, False
        self._returns, self._starts = [0.0] * num_envs, [0] * num_envs  # return and first step of the running episodes
        self._group: EnvGroup | Workers
        if workers:
            close_env(env, 0, warn)
            source.require_importable("worker processes")
            self._group = Workers(
                make, env, workers, layout=self.layout, kind=self.resume_kind, max_restarts=max_restarts, warn=warn
            )
        else:
            envs = [env, *(make() for _ in range(num_envs - 1))]
            envs = envs if max_steps is None else [TimeLimit(each, max_steps) for each in envs]
            episodes = [-1] * num_envs
            self._group = EnvGroup(envs, 0, episodes=episodes, layout=self.layout, kind=self.resume_kind, warn=warn)

    def wrap(self, wrapper: Callable[[int, gym.Env[Any, Any]], gym.Env[Any, Any]]) -> None:
        """Wraps each environment, given its index, before the first reset; without workers only."""
        if not isinstance(self._group, EnvGroup):
            raise ValueError("environments in worker processes cannot be wrapped")
        self._group.wrap(wrapper)

    @property
    def obs(self) -> np.ndarray:
        """Observations to act on next."""
        if self._obs is None:
            raise RuntimeError("the pool has no observations yet; call reset() or restore() first")
        return self._obs

    @property
    def restarts(self) -> int:
        """Number of workers that died and were replaced, also before a resume."""
        return self._group.restarts

    def reset(self) -> np.ndarray:
        self._require_no_step("reset")
        with environment_calls, usual_arithmetic:
            self._obs = self._group.reset()
        self._require_finite(self._obs, "reset")
        self._returns, self._starts = [0.0] * self.num_envs, [self._steps] * self.num_envs
        return self._obs

    def step(self, actions: np.ndarray) -> Transition:
        self.begin_step(actions)
        return self.end_step()

    def begin_step(self, actions: np.ndarray) -> None:
        """Sends the actions to the workers and returns at once. Without workers, `end_step` does all the work."""
        if self._obs is None:
            raise RuntimeError("call reset() before step()")
        self._require_no_step("begin_step")
        self._group.begin_step(self._convert_actions(np.asarray(actions)))
        self._is_stepping = True

    def end_step(self) -> Transition:
        """Waits for the step that `begin_step` began."""
        if not self._is_stepping:
            raise RuntimeError("call begin_step() before end_step()")
        self._is_stepping = False
        with environment_calls, usual_arithmetic:
            step = self._group.end_step()
        self._require_finite(step.next_obs, "step")
        self._steps += 1
        for env, reward in enumerate(step.rewards):
            if not abs(reward) <= LARGEST_REWARD:
                large = math.isfinite(reward)
                kind, fix = ("reward too large for float32", SMALLER) if large else ("NaN or infinite reward", FINITE)
                raise EnvError(f"{self.layout.name(env)} returned a {kind}: {reward}{self._place('step')}{fix}")
            self._returns[env] += reward
        finished, self._obs = [], step.next_obs
        if step.obs is not None:
            self._obs = step.obs
            self._require_finite(self._obs, "reset")
            finished = [Episode(env, self._returns[env], self._steps - self._starts[env]) for env in step.ended]
            for env in np.flatnonzero(step.terminated | step.truncated).tolist():
                self._returns[env], self._starts[env] = 0.0, self._steps
        rewards = np.array(step.rewards, np.float32)
        return Transition(step.next_obs, rewards, step.terminated, step.truncated, self._obs, finished)

    def snapshot(self, member: int = 0) -> dict[str, Any]:
        """Returns the state of a member's environments as nested dicts of arrays and JSON values."""
        self._require_no_step("snapshot")
        rows = self.layout.rows(member)
        restarts = {"restarts": self.restarts} if self.restarts else {}
        return {
            "seed": self.layout.seeds[member],
            "obs": self.obs[rows].copy(),
            "returns": self._returns[rows],
            "lengths": [self._steps - start for start in self._starts[rows]],
            "envs": {str(env): state for env, state in enumerate(self._group.snapshot(rows))},
            **restarts,
        }

    def restore(self, state: Mapping[str, Any], member: int = 0) -> list[str]:
        """Restores a snapshot; returns a message for each environment that had to start a new episode instead."""
        self._require_no_step("restore")
        saved, rows, count = snapshots.to_numpy(state), self.layout.rows(member), self.layout.num_envs
        if (len(saved["envs"]), saved["seed"]) != (count, self.layout.seeds[member]):
            raise ValueError(
                f"the snapshot has {len(saved['envs'])} environments with seed {saved['seed']}, "
                f"but this pool has {count} with seed {self.layout.seeds[member]}"
            )
        self._group.restarts = max(self._group.restarts, saved.get("restarts", 0))  # members share the workers
        states = [{**saved["envs"][str(env)], "return": saved["returns"][env]} for env in range(count)]
        with usual_arithmetic:
            obs, reasons = self._group.restore(rows, states, saved["obs"])
        if self._obs is None:
            self._obs = np.zeros((self.num_envs, *obs.shape[1:]), obs.dtype)
        self._obs = self._obs.copy()  # the caller has the old one
        self._obs[rows] = obs
        kept = [reason is None for reason in reasons]
        self._returns[rows] = [r if keep else 0.0 for r, keep in zip(saved["returns"], kept, strict=True)]
        lengths = [n if keep else 0 for n, keep in zip(saved["lengths"], kept, strict=True)]
        self._starts[rows] = [self._steps - length for length in lengths]
        failed = [(env, reason) for env, reason in enumerate(reasons) if reason is not None]
        return [f"environment {env} could not be restored exactly: {reason}" for env, reason in failed]

    def _require_no_step(self, method: str) -> None:
        if self._is_stepping:
            raise RuntimeError(f"call end_step() before {method}(): a step of the pool is under way")

    def _require_finite(self, obs: np.ndarray, method: str) -> None:
        index = first_non_finite(obs)
        if index is not None:
            env, *rest = index
            found = f"{obs[tuple(index)]} at {rest}{self._place(method)}{FINITE}"
            raise EnvError(f"{self.layout.name(env)} returned a NaN or infinite observation: {found}")

    def _place(self, method: str) -> str:
        place = self._places[method]
        return "" if place is None else f" ({place})"

    def close(self) -> None:
        self._group.close()

    def __enter__(self) -> EnvPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
