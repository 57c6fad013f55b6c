"""Goal-conditioned environments: rewards under other goals, by `compute_reward` of Gymnasium-Robotics' `GoalEnv`."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.data.replay.goals import GoalColumns
from rl_training.envs.checks.first_steps import describe_failure
from rl_training.envs.creation.making import EnvFactory, make_env
from rl_training.envs.masks import sample_action
from rl_training.envs.pools.arithmetic import usual_arithmetic
from rl_training.envs.pools.group import EnvError
from rl_training.types import Array, EnvSpec

REWARD, TERMINATED = "compute_reward", "compute_terminated"
PROBED_STEPS = 8


class GoalRewards:
    """Computes rewards and terminal flags of transitions under other goals, in an environment of its own.

    Terminal flags are those of `compute_terminated`, or the given ones if the environment has no such method.
    `compute_reward` gets rows of goals and an empty `info`, `compute_terminated` one goal at a time.
    """

    def __init__(self, source: EnvFactory, spec: EnvSpec) -> None:
        self.columns, self.name = GoalColumns(spec), str(source)
        env = make_env(source, like=spec)
        weakref.finalize(self, env.close)
        self._methods = {name: _method(env, name) for name in (REWARD, TERMINATED)}
        if self._methods[REWARD] is None:
            raise ValueError(
                f"hindsight needs the method compute_reward(achieved_goal, desired_goal, info), and {self.name} has "
                "none; add it, or set hindsight to none"
            )
        self._require_equal_rewards(env)

    def __call__(self, achieved: Array, goals: Array, dones: Array) -> tuple[Array, Array]:
        """Returns rewards and terminal flags [rows] of transitions that lead to `achieved`, for `goals` [rows, size].

        `dones` are the flags under the goals of the episodes.
        """
        own = self.columns.own(achieved), self.columns.own(goals)
        with usual_arithmetic:
            rewards = self._call(REWARD, *own)
            if self._methods[TERMINATED] is not None:
                dones = np.array([bool(self._call(TERMINATED, *each)) for each in zip(*own, strict=True)])
        return self._checked(rewards, len(goals)), dones.astype(np.float32)

    def _checked(self, rewards: Any, rows: int) -> Array:
        found = np.asarray(rewards, np.float32)
        if found.shape != (rows,):
            raise EnvError(
                f"compute_reward of {self.name} must return one reward for each row of goals, shape {(rows,)}, "
                f"got {found.shape}; compute it over the last axis"
            )
        if not np.isfinite(found).all():
            row = int((~np.isfinite(found)).argmax())
            raise EnvError(f"compute_reward of {self.name} returned {found[row]} for row {row} of {rows}")
        return found

    def _call(self, name: str, achieved: Array, goal: Array) -> Any:
        method: Any = self._methods[name]
        try:
            return method(achieved, goal, {})
        except Exception as error:
            raise EnvError(f"{name} of {self.name} failed: {describe_failure(error)}") from error

    def _require_equal_rewards(self, env: gym.Env[Any, Any]) -> None:
        """Takes a few random steps and compares the rewards of `step` with those of `compute_reward`."""
        try:
            rows, rewards = self._random_steps(env)
        except Exception as error:
            message = f"{self.name} failed in random steps that check compute_reward: {describe_failure(error)}"
            raise EnvError(message) from error
        achieved, goals = (np.stack(column) for column in zip(*rows, strict=True))
        found, _ = self(achieved, goals, np.zeros(len(rows)))
        equal = np.isclose(found, rewards, rtol=1e-3, atol=1e-3)
        if equal.sum() <= len(rows) // 2:  # rounding to float32 may move a goal across a threshold
            first = int((~equal).argmax())
            raise ValueError(
                f"hindsight needs a compute_reward that returns the rewards of step, and that of {self.name} returned "
                f"{found[first]:g} instead of {rewards[first]:g}; change it, or remove wrappers that change rewards"
            )

    def _random_steps(self, env: gym.Env[Any, Any]) -> tuple[list[tuple[Array, Array]], list[float]]:
        """Returns achieved and desired goals, and rewards."""
        env.action_space.seed(0)
        rows, rewards = [], []
        obs, _ = env.reset(seed=0)
        for _ in range(PROBED_STEPS):
            next_obs, reward, terminated, truncated, _ = env.step(sample_action(env))
            rows.append((self.columns.achieved(next_obs), self.columns.desired(obs)))
            rewards.append(float(reward))
            obs = env.reset(seed=0)[0] if terminated or truncated else next_obs
        return rows, rewards


def _method(env: gym.Env[Any, Any], name: str) -> Callable[..., Any] | None:
    found = env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
    return found if callable(found) else None
