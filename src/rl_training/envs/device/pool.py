"""A pool of environments that are batched PyTorch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from rl_training.envs.device.base import State, TensorEnv
from rl_training.envs.device.contract import Finished, TensorPool, TensorTransition, where_rows
from rl_training.envs.device.draws import Draws
from rl_training.envs.device.returned import NOT_FINITE, Returned


class DevicePool(TensorPool):
    """Copies of a `TensorEnv`.

    - A step reads no value on the host, and its tensors keep their place in memory. So a CUDA graph can capture it.
    - Each episode's random numbers depend on the pool's seed, the environment's index and the episode's number.
    """

    capturable = True

    def __init__(self, env: TensorEnv, num_envs: int = 1, *, seed: int = 0, device: torch.device | str = "cpu") -> None:
        super().__init__(env.spec, num_envs, seed=seed, device=device)
        self.env = env
        self._returned = Returned(type(env).__name__, env.spec, num_envs, self.device)
        self._seeds = Draws.of(self.seed, torch.arange(num_envs, device=self.device))
        self._state: State = {}
        self.reads_values = self.device.type == "cpu"

    @classmethod
    def joined(cls, pools: Sequence[DevicePool]) -> DevicePool:
        """Returns one pool of as many rows as several have together, each with the seed it has there."""
        whole = cls(pools[0].env, sum(pool.num_envs for pool in pools), device=pools[0].device)
        whole._seeds = Draws(torch.cat([pool._seeds.keys for pool in pools], 1))
        return whole

    def view(self, whole: DevicePool, start: int) -> None:
        """Makes this pool a view of rows of `whole`, so that both see and change the same episodes."""
        rows = slice(start, start + self.num_envs)
        self._episodes, self._lengths, self._returns, self._finished, self._obs = (
            each[rows] for each in (whole._episodes, whole._lengths, whole._returns, whole._finished, whole.obs)
        )
        self._state = {name: value[rows] for name, value in whole._state.items()}

    def reset(self) -> Tensor:
        if self._obs is not None:
            self._episodes += 1
        self._restart_counts()
        state = self.env.initial(self._draws())
        self._keep(state, self._observed(state))
        self._require_finite(self.obs)
        return self.obs

    @torch.no_grad()
    def step(self, actions: Tensor) -> TensorTransition:
        if self._obs is None:
            raise RuntimeError("call reset() before step()")
        self._lengths += 1
        outcome = self._returned.outcome(self.env.step(self._state, actions, self._draws()), self._state)
        self._returns += outcome.rewards
        limit = self.env.time_limit
        truncated = torch.zeros_like(outcome.terminated) if limit is None else self._lengths >= limit
        truncated = truncated & ~outcome.terminated
        ended = outcome.terminated | truncated
        next_obs = self._observed(outcome.state)
        if self.reads_values:
            self._require_finite(outcome.rewards, next_obs)
        if self.reads_values and not ended.any():  # a GPU computes first states that are not needed
            self._keep(outcome.state, next_obs)
        else:
            self._start_anew(ended, outcome.state, next_obs)
        return TensorTransition(next_obs, outcome.rewards, outcome.terminated, truncated, self.obs)

    def take_finished(self) -> Finished:
        self._require_finite(self.obs, self._returns, self._finished)  # on a GPU, steps have not looked
        return super().take_finished()

    def _observed(self, state: State) -> Tensor:
        return self._returned.obs(self.env.observe(state), "observe returned observations")

    def _require_finite(self, *values: Tensor) -> None:
        # A sum takes a sixth of the time, and is not finite if one of its terms is not.
        if not all(math.isfinite(each.sum().item()) or bool(each.isfinite().all()) for each in values):
            raise self._returned.error(NOT_FINITE)

    def _start_anew(self, ended: Tensor, state: State, obs: Tensor) -> None:
        self._count_ended(ended)
        first = self.env.initial(self._draws())
        kept = {name: where_rows(ended, first[name], value) for name, value in state.items()}
        self._keep(kept, where_rows(ended, self.env.observe(first), obs))

    def _draws(self) -> Draws:
        return self._seeds.at(self._episodes, self._lengths)

    def _keep(self, state: State, obs: Tensor) -> None:
        """Writes in place, so that a captured graph continues from the values of its last replay."""
        if self._obs is None:
            self._state, self._obs = {name: value.clone() for name, value in state.items()}, obs.clone()
            return
        for name, value in state.items():
            self._state[name].copy_(value)
        self._obs.copy_(obs)

    def _all(self) -> dict[str, Tensor]:
        return {**super()._all(), **{f"state.{name}": value for name, value in self._state.items()}}
