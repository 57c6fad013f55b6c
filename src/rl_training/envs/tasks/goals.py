"""Small tasks with goals and sparse rewards, in the form of Gymnasium-Robotics' `GoalEnv`."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.types import Array


class GoalTask(gym.Env[Any, Any]):
    """The reward is 0 where the achieved goal is the desired one, and -1 elsewhere."""

    goal: Array

    def compute_reward(self, achieved_goal: Array, desired_goal: Array, info: Any) -> Any:
        """Returns one reward for each row of goals [..., size]."""
        return self.is_reached(achieved_goal, desired_goal).astype(np.float32) - 1

    def is_reached(self, achieved_goal: Array, desired_goal: Array) -> Any:
        raise NotImplementedError

    def observation(self) -> dict[str, Array]:
        raise NotImplementedError

    def _reset_result(self) -> tuple[dict[str, Array], dict[str, Any]]:
        obs = self.observation()
        return obs, {"is_success": bool(self.is_reached(obs["achieved_goal"], self.goal))}

    def _step_result(self, *, ends: bool) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        """Returns the outcome of a step; with `ends`, the episode terminates at the goal."""
        obs, info = self._reset_result()
        reward = float(self.compute_reward(obs["achieved_goal"], self.goal, info))
        return obs, reward, ends and info["is_success"], False, info


class PointGoal(GoalTask):
    """A point with inertia, to be moved to a random goal in the square [-1, 1] x [-1, 1] and stopped there.

    Actions are forces. The goal is reached within `radius`. Episodes do not terminate, so a policy has to stay.
    """

    def __init__(self, radius: float = 0.05, force: float = 0.02, friction: float = 0.1) -> None:
        self.radius, self.force, self.friction = radius, force, friction
        square = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = spaces.Dict(
            {"observation": spaces.Box(-1.0, 1.0, (4,), np.float32), "achieved_goal": square, "desired_goal": square}
        )
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.position = self.velocity = self.goal = np.zeros(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.position, self.goal = self.np_random.uniform(-1, 1, (2, 2))
        self.velocity = np.zeros(2)
        return self._reset_result()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.velocity = (1 - self.friction) * self.velocity + self.force * np.clip(action, -1, 1)
        moved = self.position + self.velocity
        self.position = np.clip(moved, -1, 1)
        self.velocity = np.where(moved == self.position, self.velocity, 0.0)  # walls stop the point
        return self._step_result(ends=False)

    def is_reached(self, achieved_goal: Array, desired_goal: Array) -> Any:
        return np.linalg.norm(achieved_goal - desired_goal, axis=-1) < self.radius

    def observation(self) -> dict[str, Array]:
        position, velocity, goal = (each.astype(np.float32) for each in (self.position, self.velocity, self.goal))
        whole = np.concatenate([position, velocity])
        return {"observation": whole, "achieved_goal": position, "desired_goal": goal}


class BitFlip(GoalTask):
    """Bit flipping: an action flips one bit. Episodes terminate at the goal, a random bit string.

    The task of the first experiments with hindsight experience replay (arXiv:1707.01495).
    """

    def __init__(self, bits: int = 15) -> None:
        each = spaces.MultiBinary(bits)
        self.observation_space = spaces.Dict({"observation": each, "achieved_goal": each, "desired_goal": each})
        self.action_space = spaces.Discrete(bits)
        self.state = self.goal = np.zeros(bits, np.int8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state, self.goal = self.np_random.integers(0, 2, (2, len(self.state)), np.int8)
        return self._reset_result()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.state = self.state.copy()
        self.state[action] ^= 1
        return self._step_result(ends=True)

    def is_reached(self, achieved_goal: Array, desired_goal: Array) -> Any:
        return (achieved_goal == desired_goal).all(-1)

    def compute_terminated(self, achieved_goal: Array, desired_goal: Array, info: Any) -> bool:
        return bool(self.is_reached(achieved_goal, desired_goal))

    def observation(self) -> dict[str, Array]:
        return {"observation": self.state, "achieved_goal": self.state.copy(), "desired_goal": self.goal.copy()}
