"""One environment of a device as a Gymnasium environment, for evaluation and your own loops."""

from typing import Any

import gymnasium as gym
import numpy as np
import torch

from rl_training.envs.device.base import State, TensorEnv
from rl_training.envs.device.draws import Draws
from rl_training.envs.device.returned import Returned
from rl_training.envs.device.simulator import VectorSimulator
from rl_training.envs.device.simulator_pool import SimulatorPool
from rl_training.types import EnvSpec


class GymnasiumSpaces(gym.Env[np.ndarray, Any]):
    """The spaces of a spec; actions are in its units."""

    def __init__(self, spec: EnvSpec) -> None:
        if spec.obs_dtype == "uint8":
            self.observation_space = gym.spaces.Box(0, 255, spec.obs_shape, np.uint8)
        else:
            self.observation_space = gym.spaces.Box(-np.inf, np.inf, spec.obs_shape, np.float32)
        self._low, self._high = (np.array(bound, np.float32) for bound in (spec.action_low, spec.action_high))
        if spec.action_kind == "box":
            shape = spec.action_shape
            self.action_space: gym.Space[Any] = gym.spaces.Box(self._low.reshape(shape), self._high.reshape(shape))
        elif spec.action_kind == "discrete":
            self.action_space = gym.spaces.Discrete(spec.action_dim, start=spec.action_start)
        else:
            self.action_space = gym.spaces.MultiDiscrete(np.array(spec.action_sizes))


class SingleEnv(GymnasiumSpaces):
    """Plays a `TensorEnv` on the CPU. Resets with the same seed start the same episode."""

    def __init__(self, env: TensorEnv) -> None:
        super().__init__(env.spec)
        self.env = env
        self._returned = Returned(type(env).__name__, env.spec, 1, torch.device("cpu"))
        self._state: State = {}
        self._seed, self._episode, self._steps = 0, -1, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._episode = 0 if seed is not None else self._episode + 1
        self._seed = self._seed if seed is None else seed
        self._steps = 0
        self._state = self.env.initial(self._draws())
        return self._obs(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        outcome = self.env.step(self._state, self._converted(action), self._draws())
        self._state, rewards, terminated = self._returned.outcome(outcome, self._state)
        ended, limit = bool(terminated[0]), self.env.time_limit
        truncated = limit is not None and self._steps >= limit and not ended
        return self._obs(), float(rewards[0]), ended, truncated, {}

    def _converted(self, action: Any) -> torch.Tensor:
        """The action in the library's units: Box in [-1, 1], others from 0."""
        if self.env.spec.action_kind == "box":
            flat = np.asarray(action, np.float32).reshape(-1)
            return torch.as_tensor((flat - self._low) / (self._high - self._low) * 2 - 1)[None]
        return torch.as_tensor(np.asarray(action) - self.env.spec.action_start)[None]

    def _draws(self) -> Draws:
        return Draws.of(self._seed, *(torch.tensor([each]) for each in (0, self._episode, self._steps)))

    def _obs(self) -> np.ndarray:
        return self._returned.obs(self.env.observe(self._state), "observe returned observations")[0].numpy()


class SingleSimulator(GymnasiumSpaces):
    """Plays the first environment of a `VectorSimulator`, on the device of its observations."""

    def __init__(self, simulator: VectorSimulator) -> None:
        super().__init__(simulator.spec)
        self.simulator = simulator
        self._pool: SimulatorPool | None = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._pool = SimulatorPool(self.simulator, seed=int(self.np_random.integers(2**31)))
        return self._row(self._pool.reset()), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self._pool is not None
        actions = torch.as_tensor(np.asarray(action)).expand(self.simulator.num_envs, *np.shape(action))
        step = self._pool.step_in_units(actions)
        return self._row(step.next_obs), float(step.rewards[0]), bool(step.terminated[0]), bool(step.truncated[0]), {}

    def close(self) -> None:
        self.simulator.close()

    @staticmethod
    def _row(rows: torch.Tensor) -> np.ndarray:
        return rows[0].cpu().numpy().copy()
