"""Environments stepped together in one process."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from rl_training.envs import snapshots
from rl_training.envs.checks.first_steps import (
    EnvFault,
    check_first_steps,
    describe_failure,
    require_outcome,
    warn_of_changed_actions,
)
from rl_training.envs.checks.user_code import user_env
from rl_training.envs.pools.layout import Layout
from rl_training.envs.pools.shared_objects import claim, release
from rl_training.envs.pools.shared_rows import StepArrays, obs_dtype
from rl_training.messages import Warn, describe_error, print_warning

REWARDS = frozenset({float, int, np.float32, np.float64})  # types that need no further check
FLAGS = frozenset({bool, np.bool_})


class Episode(NamedTuple):
    env: int
    return_: float
    length: int


class EnvError(RuntimeError):
    """An environment raised an error or returned invalid values."""


class GroupStep(NamedTuple):
    next_obs: np.ndarray
    rewards: list[float]
    terminated: np.ndarray
    truncated: np.ndarray
    obs: np.ndarray | None  # observations to act on next, unless they are next_obs
    ended: list[int]  # environments whose episode ended


class EnvGroup:
    """Consecutive environments of a pool, reset automatically at the end of an episode."""

    restarts = 0

    def __init__(
        self, envs: list[gym.Env[Any, Any]], first: int, *, episodes: list[int], layout: Layout, kind: str,
        warn: Warn = print_warning,
    ) -> None:  # fmt: skip
        self._envs, self._first, self._episodes, self._layout, self._kind = envs, first, episodes, layout, kind
        self._warn = warn
        claim(self, envs)
        for row, env in enumerate(envs):
            check_first_steps(env, warn if first + row == 0 else _ignore)
        core = user_env(envs[0])
        self._space = core, core.action_space
        self._actions = [bytearray() for _ in envs]  # of the running episodes, if kind is "replay"
        self._pending = np.empty(0)
        space: Any = envs[0].observation_space
        self._rows, self._shape = (len(envs), *space.shape), space.shape
        self._dtype = obs_dtype(space)
        self._pixels = self._dtype == np.uint8

    def wrap(self, wrapper: Callable[[int, gym.Env[Any, Any]], gym.Env[Any, Any]]) -> None:
        self._envs = [wrapper(self._first + row, env) for row, env in enumerate(self._envs)]

    def reset(self) -> np.ndarray:
        obs = np.empty(self._rows, self._dtype)
        for row in range(len(self._envs)):
            self._begin_episode(row, obs)
        return obs

    def begin_step(self, actions: np.ndarray) -> None:
        """Keeps the actions, in the environment's units, for `end_step`."""
        self._pending = actions

    def end_step(self) -> GroupStep:
        """Steps every environment once; the arrays are the caller's."""
        next_obs, count = np.empty(self._rows, self._dtype), len(self._envs)
        rewards, terminated, truncated = [0.0] * count, np.zeros(count, bool), np.zeros(count, bool)
        ended = self._step(self._pending, next_obs, rewards, terminated, truncated)
        if not ended:
            return GroupStep(next_obs, rewards, terminated, truncated, None, ended)
        obs = next_obs.copy()
        for row in ended:
            self._begin_episode(row, obs)
        return GroupStep(next_obs, rewards, terminated, truncated, obs, [self._first + row for row in ended])

    def step_in(self, arrays: StepArrays) -> None:
        """Steps every environment once, with actions and results in the given arrays."""
        arrays.terminated[:] = arrays.truncated[:] = False
        actions = arrays.actions.copy()  # an environment may keep its action
        for row in self._step(actions, arrays.next_obs, arrays.rewards, arrays.terminated, arrays.truncated):
            self._begin_episode(row, arrays.first_obs)

    def _step(
        self, actions: np.ndarray, next_obs: np.ndarray, rewards: Any, terminated: np.ndarray, truncated: np.ndarray
    ) -> list[int]:
        """Writes the outcome into the arrays and returns the rows whose episode ended."""
        ended, row = [], 0
        taken = [action.tobytes() for action in actions] if self._kind == "replay" else []  # `step` may change them
        try:
            for row, env in enumerate(self._envs):
                obs, reward, is_terminal, is_cut, _ = env.step(actions[row])
                if type(reward) not in REWARDS or type(is_terminal) not in FLAGS or type(is_cut) not in FLAGS:
                    require_outcome(env, reward, is_terminal, is_cut)
                self._write(next_obs, row, obs)
                rewards[row] = float(reward)
                if is_terminal or is_cut:
                    terminated[row], truncated[row] = is_terminal, not is_terminal
                    ended.append(row)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also SystemExit, which would end the run without a message
            raise self._failure(row, "step", error) from error
        if self._kind == "replay":
            for earlier, action in zip(self._actions, taken, strict=True):
                earlier += action
        return ended

    def snapshot(self, rows: slice) -> list[dict[str, Any]]:
        space: Any = self._envs[0].action_space
        states = []
        for env, episode, taken in zip(self._envs[rows], self._episodes[rows], self._actions[rows], strict=True):
            if self._kind == "snapshot":
                state = snapshots.save_state(env)
            else:
                state = {"actions": np.frombuffer(bytes(taken), space.dtype).reshape(-1, *space.shape)}
            states.append({"kind": self._kind, "episode": episode, **state})
        return states

    def restore(
        self, rows: slice, states: list[dict[str, Any]], obs: np.ndarray
    ) -> tuple[np.ndarray, list[str | None]]:
        """Returns the current observations, and the reason for each environment that had to start a new episode."""
        current = np.empty(self._rows, self._dtype)
        current[rows] = obs
        reasons: list[str | None] = [None] * len(states)
        for number, (row, state) in enumerate(zip(range(rows.start, rows.stop), states, strict=True)):
            self._episodes[row] = state["episode"]
            try:
                self._restore_episode(row, state, obs[number])
            except Exception as error:  # start a new episode whatever is wrong with the saved one
                reasons[number] = str(error) if isinstance(error, ValueError) else describe_error(error)
                self._begin_episode(row, current)
        return current[rows], reasons

    def close(self) -> None:
        release(self)
        for row, env in enumerate(self._envs):
            close_env(env, self._first + row, self._warn)

    def _begin_episode(self, row: int, obs: np.ndarray) -> None:
        self._episodes[row] += 1
        self._reset_episode(row, obs)

    def _reset_episode(self, row: int, obs: np.ndarray) -> None:
        """Resets one environment with the seed of its current episode number."""
        self._actions[row].clear()
        try:
            first, _ = self._envs[row].reset(seed=self._layout.episode_seed(self._first + row, self._episodes[row]))
            self._write(obs, row, first)
            if self._first + row == 0:
                warn_of_changed_actions(*self._space, self._warn)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self._failure(row, "reset", error) from error

    def _restore_episode(self, row: int, state: dict[str, Any], obs: np.ndarray) -> None:
        if state["kind"] != self._kind:
            raise ValueError(f"its saved state is of kind {state['kind']!r}, but this pool needs {self._kind!r}")
        last = np.empty(self._rows, self._dtype)
        self._reset_episode(row, last)
        if self._kind == "snapshot":
            snapshots.restore_state(self._envs[row], state)
            return
        total = 0.0
        for number, action in enumerate(state["actions"].copy(), start=1):  # `step` may change them
            next_obs, reward, is_terminal, is_cut, _ = self._envs[row].step(action)
            if is_terminal or is_cut:
                raise ValueError(f"its replayed episode ended after {number} of {len(state['actions'])} steps")
            self._write(last, row, next_obs)
            total += float(reward)
        if not np.array_equal(last[row], obs):
            raise ValueError("its replayed episode led to a different observation")
        if total != state["return"]:
            raise ValueError(f"its replayed episode had the return {total:g}, not {state['return']:g} as before")
        self._actions[row] += state["actions"].tobytes()

    def _write(self, rows: np.ndarray, row: int, obs: Any) -> None:
        obs = np.asarray(obs)
        # Assignment would broadcast or cast silently.
        is_cast = obs.dtype != np.uint8 if self._pixels else obs.dtype.kind not in "biuf"
        if obs.shape != self._shape or is_cast:
            expected = f"{np.dtype(self._dtype)} of shape {self._shape}"
            raise ValueError(f"an observation must be {expected}, got {obs.dtype} of shape {obs.shape}")
        rows[row] = obs

    def _failure(self, row: int, method: str, error: BaseException) -> EnvError:
        if isinstance(error, EnvFault):
            return EnvError(f"{self._layout.name(self._first + row)}: {error}")
        return EnvError(f"{self._layout.name(self._first + row)} failed in {method}: {describe_failure(error)}")


def _ignore(message: str) -> None: ...


def close_env(env: gym.Env[Any, Any], number: int = 0, warn: Warn = _ignore) -> None:
    """Closes an environment; an error is only a warning, because nothing is lost."""
    try:
        env.close()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        warn(f"environment {number} failed in close: {describe_error(error)}")
