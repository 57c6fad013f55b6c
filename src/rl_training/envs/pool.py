"""A small pool of Gymnasium environments, stepped together in this process or in workers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.envs import snapshots
from rl_training.envs.atari import AtariGame, is_atari, make_atari
from rl_training.envs.group import EnvError, EnvGroup, Episode
from rl_training.envs.spaces import PackedObservation
from rl_training.envs.workers import Workers
from rl_training.types import EnvSpec

EXTRAS = {"gymnasium.envs.mujoco": "rl-training[mujoco]", "gymnasium.envs.box2d": "rl-training[box2d]"}  # by module


class Transition(NamedTuple):
    """One step of the whole pool; rows are environments."""

    next_obs: np.ndarray  # the true successors: at an episode's end, its last observation
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray  # cut short in a state that is not terminal
    obs: np.ndarray  # what to act on next: next_obs itself, or where an episode has ended, the new one's first
    finished: list[Episode]


def make_env(
    env_id: str | Callable[..., gym.Env[Any, Any]], env_kwargs: Mapping[str, Any], *, training: bool = False
) -> gym.Env[Any, Any]:
    """The environment of this id or from this function; what is unknown or not installed is said in one sentence.

    Games of Atari are preprocessed, and shaped for `training`; `preprocess: false` in env_kwargs leaves them bare. A
    Dict of observations is packed into one row of bytes.
    """
    env = _made(env_id, env_kwargs, training=training)
    return PackedObservation(env) if isinstance(env.observation_space, spaces.Dict) else env


def _made(
    env_id: str | Callable[..., gym.Env[Any, Any]], env_kwargs: Mapping[str, Any], *, training: bool
) -> gym.Env[Any, Any]:
    if callable(env_id):
        env = env_id(**env_kwargs)
        if not isinstance(env, gym.Env):
            raise TypeError(f"env_id must name or make a gymnasium.Env, got {type(env).__name__}")
        return env
    try:
        if is_atari(env_id):
            return make_atari(env_id, training=training, **env_kwargs)
        return gym.make(env_id, **{"disable_env_checker": True, **env_kwargs})
    except (gym.error.UnregisteredEnv, gym.error.DeprecatedEnv) as error:
        nearest = get_close_matches(env_id, list(gym.registry))
        hint = f"nearest are {', '.join(nearest)}" if nearest else str(error)
        raise ValueError(f"env_id {env_id!r} is not registered with Gymnasium; {hint}") from error
    except (gym.error.DependencyNotInstalled, ImportError) as error:
        module = str(getattr(gym.registry.get(env_id), "entry_point", ""))
        known = "rl-training[atari]" if is_atari(env_id) else None
        extra = next((extra for family, extra in EXTRAS.items() if module.startswith(family)), known)
        cure = f'run: pip install "{extra}"' if extra else str(error)
        raise ImportError(f"{env_id} needs a package that is not installed; {cure}") from error
    except TypeError as error:
        unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if unknown is None or unknown[1] not in env_kwargs:
            raise
        raise TypeError(f"env_kwargs: {env_id} takes no keyword {unknown[1]!r}; leave it out or correct it") from error


def env_spec_of(env: gym.Env[Any, Any]) -> EnvSpec:
    """What a learner must know of an environment from `make_env`; spaces that no learner takes are refused."""
    spec = _spec_of_spaces(env)
    return replace(spec, obs_parts=env.parts) if isinstance(env, PackedObservation) else spec


def _spec_of_spaces(env: gym.Env[Any, Any]) -> EnvSpec:
    obs, actions = env.observation_space, env.action_space
    if not isinstance(obs, spaces.Box) or not (obs.dtype == np.uint8 or obs.dtype.kind == "f"):
        raise TypeError(f"observations must be a Box of floats or of uint8, got {obs}; wrap the environment")
    obs_dtype = "uint8" if obs.dtype == np.uint8 else "float32"
    if isinstance(actions, spaces.Discrete):
        return EnvSpec(obs.shape, "discrete", int(actions.n), obs_dtype, action_start=int(actions.start))
    if isinstance(actions, spaces.MultiDiscrete):
        sizes, starts = (tuple(each.ravel().tolist()) for each in (actions.nvec, actions.start))
        shape = actions.nvec.shape
        return EnvSpec(
            obs.shape, "multi_discrete", len(sizes), obs_dtype, shape, action_sizes=sizes, action_starts=starts
        )
    if not isinstance(actions, spaces.Box) or actions.dtype.kind != "f":
        raise TypeError(
            f"actions must be a Box of floats, Discrete or MultiDiscrete, got {actions}; wrap the environment "
            "(`rl-training algos` says which algorithm takes which)"
        )
    if not actions.is_bounded():
        raise TypeError(f"a Box of actions must have finite bounds, to which [-1, 1] is scaled, got {actions}")
    low, high = (tuple(bound.ravel().astype(float).tolist()) for bound in (actions.low, actions.high))
    return EnvSpec(obs.shape, "box", len(low), obs_dtype, actions.shape, low, high)


class EnvPool:
    """Environments stepped together, each beginning its next episode as soon as one is over.

    Every episode has its own seed, from the pool's, the environment's number and its own; so trajectories do not
    depend on where the environments live. Actions are in [-1, 1] for a Box, clipped and scaled here, and count from 0
    for Discrete and MultiDiscrete. An episode lost with its worker is reported as truncated, and not among the
    finished. `training` is told to those few environments that are not the same in training and when a policy is
    scored.
    """

    def __init__(
        self,
        env_id: str | Callable[..., gym.Env[Any, Any]],
        num_envs: int = 1,
        *,
        seed: int = 0,
        env_kwargs: Mapping[str, Any] | None = None,
        workers: int = 0,
        training: bool = False,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}")
        if not 0 <= workers <= num_envs:
            raise ValueError(f"workers must be between 0 and num_envs = {num_envs}, got {workers}")
        make = partial(make_env, env_id, dict(env_kwargs or {}), training=training)
        env = make()
        native = not callable(env_id) and snapshots.is_exact_for(env)
        self.num_envs, self.seed, self.spec = num_envs, int(seed), env_spec_of(env)
        self.resume_kind = "snapshot" if native else "replay"
        self.stacks_frames = isinstance(env, AtariGame) and env.moves_by_planes
        self._door = ActionDoor(env.action_space, self.spec, num_envs)
        self._obs: np.ndarray | None = None
        self._steps = 0
        self._returns, self._begun = [0.0] * num_envs, [0] * num_envs  # of the running episodes; begun in steps
        self._group: EnvGroup | Workers
        if workers:
            env.close()
            self._group = Workers(make, num_envs, workers, seed=self.seed, kind=self.resume_kind)
        else:
            envs = [env, *(make() for _ in range(num_envs - 1))]
            self._group = EnvGroup(envs, 0, episodes=[-1] * num_envs, seed=self.seed, kind=self.resume_kind)

    @property
    def obs(self) -> np.ndarray:
        """What to act on next."""
        if self._obs is None:
            raise RuntimeError("the pool has no observations before reset() or restore()")
        return self._obs

    @property
    def restarts(self) -> int:
        """How often a worker has died and been replaced."""
        return self._group.restarts

    def reset(self) -> np.ndarray:
        """Begin the next episode in every environment."""
        self._obs = self._group.reset()
        _refuse_not_finite(self._obs)
        self._returns, self._begun = [0.0] * self.num_envs, [self._steps] * self.num_envs
        return self._obs

    def step(self, actions: np.ndarray) -> Transition:
        """Take one action in every environment."""
        if self._obs is None:
            raise RuntimeError("call reset() before step()")
        moved = self._group.step(self._door(np.asarray(actions)))
        _refuse_not_finite(moved.next_obs)
        self._steps += 1
        for env, reward in enumerate(moved.rewards):
            if not math.isfinite(reward):
                raise EnvError(f"environment {env} returned a reward that is not finite: {reward}")
            self._returns[env] += reward
        finished, self._obs = [], moved.next_obs
        if moved.obs is not None:
            self._obs = moved.obs
            _refuse_not_finite(self._obs)
            finished = [Episode(env, self._returns[env], self._steps - self._begun[env]) for env in moved.ended]
            for env in np.flatnonzero(moved.terminated | moved.truncated).tolist():
                self._returns[env], self._begun[env] = 0.0, self._steps
        rewards = np.array(moved.rewards, np.float32)
        return Transition(moved.next_obs, rewards, moved.terminated, moved.truncated, self._obs, finished)

    def snapshot(self) -> dict[str, Any]:
        """All that a pool of the same arguments needs to go on from here: nested dicts of arrays and JSON values."""
        return {
            "seed": self.seed,
            "obs": self.obs.copy(),
            "returns": list(self._returns),
            "lengths": [self._steps - begun for begun in self._begun],
            "envs": {str(env): state for env, state in enumerate(self._group.snapshot())},
        }

    def restore(self, state: Mapping[str, Any]) -> list[str]:
        """Go on from a snapshot; returns why an environment could not, and began its next episode instead."""
        saved = snapshots.with_arrays(state)
        if (len(saved["envs"]), saved["seed"]) != (self.num_envs, self.seed):
            raise ValueError(
                f"the snapshot is of {len(saved['envs'])} environments with seed {saved['seed']}, "
                f"and this pool has {self.num_envs} with seed {self.seed}"
            )
        states = [saved["envs"][str(env)] for env in range(self.num_envs)]
        self._obs, reasons = self._group.restore(states, saved["obs"])
        self._returns = [r if reason is None else 0.0 for r, reason in zip(saved["returns"], reasons, strict=True)]
        lengths = [n if reason is None else 0 for n, reason in zip(saved["lengths"], reasons, strict=True)]
        self._begun = [self._steps - length for length in lengths]
        told = [(env, reason) for env, reason in enumerate(reasons) if reason is not None]
        return [f"environment {env} could not be restored exactly: {reason}" for env, reason in told]

    def close(self) -> None:
        self._group.close()

    def __enter__(self) -> EnvPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ActionDoor:
    """Where actions leave the library: checked, and given in the environment's own units, type and shape."""

    def __init__(self, space: Any, spec: EnvSpec, num_envs: int) -> None:
        self._space, self._spec, self._num_envs = space, spec, num_envs
        self._rows = (num_envs, *spec.action_shape)
        # One row an environment, since broadcasting a small row costs more than the arithmetic.
        low, high = (np.tile(bound, (num_envs, 1)) for bound in (spec.action_low, spec.action_high))
        bounds = low, high, (high - low) / 2, (high + low) / 2
        self._low, self._high, self._scale, self._center = (bound.astype(space.dtype) for bound in bounds)
        self._is_centered = not self._center.any()
        doors = {"box": self._scaled, "discrete": self._numbered, "multi_discrete": self._chosen}
        self._through = doors[spec.action_kind]

    def __call__(self, actions: np.ndarray) -> np.ndarray:
        return self._through(actions)

    def _scaled(self, actions: np.ndarray) -> np.ndarray:
        if actions.shape != self._low.shape:
            raise ValueError(f"actions must have shape {self._low.shape}, got {actions.shape}")
        bad = _first_not_finite(actions)
        if bad is not None:
            raise ValueError(f"actions must be finite, got {actions[bad[0]].tolist()} for environment {bad[0]}")
        units = actions * self._scale
        if not self._is_centered:
            units += self._center
        units = np.minimum(np.maximum(units, self._low), self._high)  # for small arrays faster than clip, or out=
        return units.astype(self._space.dtype, copy=False).reshape(self._rows)

    def _numbered(self, actions: np.ndarray) -> np.ndarray:
        if actions.shape != (self._num_envs,) or actions.dtype.kind not in "iu":
            raise ValueError(f"actions must be {self._num_envs} integers, got {actions.dtype} of shape {actions.shape}")
        count = self._spec.action_dim
        for env, action in enumerate(actions.tolist()):
            if not 0 <= action < count:
                raise ValueError(f"actions must be in 0..{count - 1}, got {action} for environment {env}")
        if self._space.start != 0:
            actions = actions + self._space.start
        return actions.astype(self._space.dtype)

    def _chosen(self, actions: np.ndarray) -> np.ndarray:
        wanted = (self._num_envs, self._spec.action_dim)
        if actions.shape != wanted or actions.dtype.kind not in "iu":
            raise ValueError(f"actions must be integers of shape {wanted}, got {actions.dtype} of {actions.shape}")
        wrong = (actions < 0) | (actions >= self._spec.action_sizes)
        if wrong.any():
            env, choice = np.argwhere(wrong)[0].tolist()
            most, came = self._spec.action_sizes[choice] - 1, actions[env, choice]
            raise ValueError(f"choice {choice} must be in 0..{most}, got {came} for environment {env}")
        return (actions + self._spec.action_starts).astype(self._space.dtype).reshape(self._rows)


def _first_not_finite(rows: np.ndarray) -> list[int] | None:
    """Where the first NaN or infinity stands, its row first."""
    if rows.dtype.kind == "u" or math.isfinite(np.vdot(rows, rows)):  # one fast pass; large numbers need the second
        return None
    places: list[list[int]] = np.argwhere(~np.isfinite(rows)).tolist()
    return places[0] if places else None


def _refuse_not_finite(obs: np.ndarray) -> None:
    bad = _first_not_finite(obs)
    if bad is not None:
        env, *place = bad
        raise EnvError(f"environment {env} returned an observation that is not finite: {obs[tuple(bad)]} at {place}")
