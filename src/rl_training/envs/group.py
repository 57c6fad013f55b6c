"""Environments that live together in one process."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from rl_training.envs import snapshots
from rl_training.streams import episode_seed


class Episode(NamedTuple):
    """A finished episode of environment `env`."""

    env: int
    return_: float
    length: int


class EnvError(RuntimeError):
    """An environment raised an error, or handed out what no environment may."""


class Moved(NamedTuple):
    """One step of a group."""

    next_obs: np.ndarray
    rewards: list[float]
    terminated: np.ndarray
    truncated: np.ndarray
    obs: np.ndarray | None  # what to act on next, where that is not next_obs
    ended: list[int]  # environments whose episode is over


class EnvGroup:
    """Neighbouring environments of a pool, each beginning its next episode as soon as one is over."""

    restarts = 0

    def __init__(self, envs: list[gym.Env[Any, Any]], first: int, *, episodes: list[int], seed: int, kind: str) -> None:
        self._envs, self._first, self._episodes, self._seed, self._kind = envs, first, episodes, seed, kind
        self._played = [bytearray() for _ in envs]  # actions of the running episodes, where kind is "replay"
        space: Any = envs[0].observation_space
        self._rows, self._shape = (len(envs), *space.shape), space.shape
        self._pixels = space.dtype == np.uint8
        self._dtype = np.uint8 if self._pixels else np.float32

    def reset(self) -> np.ndarray:
        obs = np.empty(self._rows, self._dtype)
        for row in range(len(self._envs)):
            self._begin_episode(row, obs)
        return obs

    def step(self, actions: np.ndarray) -> Moved:
        """Take one action, in the environment's own units, in each environment."""
        next_obs, count = np.empty(self._rows, self._dtype), len(self._envs)
        rewards, terminated, truncated = [0.0] * count, np.zeros(count, bool), np.zeros(count, bool)
        over, row = [], 0
        try:
            for row, env in enumerate(self._envs):
                obs, reward, ends, stops, _ = env.step(actions[row])
                self._write(next_obs, row, obs)
                rewards[row] = float(reward)
                if ends or stops:
                    terminated[row], truncated[row] = ends, not ends
                    over.append(row)
        except Exception as error:
            raise self._failure(row, "step", error) from error
        if self._kind == "replay":
            for played, action in zip(self._played, actions, strict=True):
                played += action.tobytes()
        if not over:
            return Moved(next_obs, rewards, terminated, truncated, None, over)
        obs = next_obs.copy()
        for row in over:
            self._begin_episode(row, obs)
        return Moved(next_obs, rewards, terminated, truncated, obs, [self._first + row for row in over])

    def snapshot(self) -> list[dict[str, Any]]:
        """What brings each environment back to where it stands."""
        space: Any = self._envs[0].action_space
        states = []
        for env, episode, played in zip(self._envs, self._episodes, self._played, strict=True):
            if self._kind == "snapshot":
                state = snapshots.take(env)
            else:
                state = {"actions": np.frombuffer(bytes(played), space.dtype).reshape(-1, *space.shape)}
            states.append({"kind": self._kind, "episode": episode, **state})
        return states

    def restore(self, states: list[dict[str, Any]], obs: np.ndarray) -> tuple[np.ndarray, list[str | None]]:
        """Where each environment stands now, and why, where it had to begin its next episode instead."""
        now = obs.copy()
        reasons: list[str | None] = [None] * len(states)
        for row, state in enumerate(states):
            self._episodes[row] = state["episode"]
            try:
                self._restore_episode(row, state, obs[row])
            except Exception as error:  # whatever is wrong with the old episode, a new one is sound
                reasons[row] = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
                self._begin_episode(row, now)
        return now, reasons

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _begin_episode(self, row: int, obs: np.ndarray) -> None:
        self._episodes[row] += 1
        self._play_from_start(row, obs)

    def _play_from_start(self, row: int, obs: np.ndarray) -> None:
        """The one place where an episode is seeded: its number alone brings it back."""
        self._played[row].clear()
        try:
            first, _ = self._envs[row].reset(seed=episode_seed(self._seed, self._first + row, self._episodes[row]))
            self._write(obs, row, first)
        except Exception as error:
            raise self._failure(row, "reset", error) from error

    def _restore_episode(self, row: int, state: dict[str, Any], obs: np.ndarray) -> None:
        if state["kind"] != self._kind:
            raise ValueError(f"what was saved of it is {state['kind']!r}, and this pool needs {self._kind!r}")
        last = np.empty(self._rows, self._dtype)
        self._play_from_start(row, last)
        if self._kind == "snapshot":
            snapshots.put_back(self._envs[row], state)
            return
        for number, action in enumerate(state["actions"], start=1):
            seen, _, ends, stops, _ = self._envs[row].step(action)
            if ends or stops:
                raise ValueError(f"its episode, replayed, was over after {number} of {len(state['actions'])} steps")
            self._write(last, row, seen)
        if not np.array_equal(last[row], obs):
            raise ValueError("its episode, replayed, led to another observation")
        self._played[row] += state["actions"].tobytes()

    def _write(self, rows: np.ndarray, row: int, obs: Any) -> None:
        obs = np.asarray(obs)
        if obs.shape != self._shape or (self._pixels and obs.dtype != np.uint8):  # assignment would broadcast and cast
            wanted = f"{np.dtype(self._dtype)} of shape {self._shape}"
            raise ValueError(f"an observation must be {wanted}, got {obs.dtype} of shape {obs.shape}")
        rows[row] = obs

    def _failure(self, row: int, method: str, error: Exception) -> EnvError:
        return EnvError(f"environment {self._first + row} failed in {method}: {type(error).__name__}: {error}")
