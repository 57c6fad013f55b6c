"""A pool of environments that are batched PyTorch: same contract as `EnvPool`, with tensors instead of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rl_training.envs.device.base import State, TensorEnv
from rl_training.envs.device.draws import Draws


class TensorTransition(NamedTuple):
    """One step of the pool; see `rl_training.envs.pool.Transition`. `finished` is counted in the pool instead."""

    next_obs: Tensor
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor
    obs: Tensor
    finished: tuple[()] = ()


class Finished(NamedTuple):
    """Sums over finished episodes."""

    episodes: int
    returns: float
    lengths: float

    def means(self) -> dict[str, float | None]:
        """The metrics of the episodes; empty without any."""
        if not self.episodes:
            return {}
        return {"episode_return": self.returns / self.episodes, "episode_length": self.lengths / self.episodes}


class DevicePool:
    """Environments stepped together on a device and reset automatically at the end of an episode.

    - A step reads no value on the host, and its tensors keep their place in memory. So a CUDA graph can capture it.
    - Each episode's random numbers depend on the pool's seed, the environment's index and the episode's number.
    - Finished episodes are summed on the device until `take_finished` reads them.
    """

    on_device = True
    resume_kind = "snapshot"
    replaces_bounds = stacks_frames = False
    notes: tuple[str, ...] = ()
    restarts = workers = 0

    def __init__(self, env: TensorEnv, num_envs: int = 1, *, seed: int = 0, device: torch.device | str = "cpu") -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}")
        self.env, self.num_envs, self.seed, self.spec = env, num_envs, int(seed), env.spec
        self.device = torch.device(device)
        self._rows = torch.arange(num_envs, device=self.device)
        self._episodes = torch.zeros_like(self._rows)
        self._lengths = torch.zeros_like(self._rows)
        self._returns = torch.zeros(num_envs, dtype=torch.float64, device=self.device)
        self._finished = torch.zeros(3, dtype=torch.float64, device=self.device)  # count, returns, lengths
        self._state: State = {}
        self._obs: Tensor | None = None
        self._begun: Tensor | None = None  # actions of a step that has begun

    @property
    def obs(self) -> Tensor:
        """Observations to act on next; the next step overwrites them."""
        if self._obs is None:
            raise RuntimeError("the pool has no observations yet; call reset() or restore() first")
        return self._obs

    def reset(self) -> Tensor:
        if self._obs is not None:
            self._episodes += 1
        for numbers in (self._lengths, self._returns):
            numbers.zero_()
        state = self.env.initial(self._draws())
        self._keep(state, self.env.observe(state))
        return self.obs

    @torch.no_grad()
    def step(self, actions: Tensor) -> TensorTransition:
        if self._obs is None:
            raise RuntimeError("call reset() before step()")
        self._lengths += 1
        outcome = self.env.step(self._state, actions, self._draws())
        self._returns += outcome.rewards
        limit = self.env.time_limit
        truncated = torch.zeros_like(outcome.terminated) if limit is None else self._lengths >= limit
        truncated = truncated & ~outcome.terminated
        ended = outcome.terminated | truncated
        next_obs = self.env.observe(outcome.state)
        self._finished += torch.stack((ended.double(), self._returns * ended, (self._lengths * ended).double())).sum(1)
        self._episodes += ended
        self._lengths *= ~ended
        self._returns *= ~ended
        first = self.env.initial(self._draws())
        self._keep(
            {name: _where(ended, first[name], value) for name, value in outcome.state.items()},
            _where(ended, self.env.observe(first), next_obs),
        )
        return TensorTransition(next_obs, outcome.rewards, outcome.terminated, truncated, self.obs)

    def begin_step(self, actions: Tensor) -> None:
        """Keeps the actions; `end_step` does all the work."""
        self._begun = actions

    def end_step(self) -> TensorTransition:
        if self._begun is None:
            raise RuntimeError("call begin_step() before end_step()")
        actions, self._begun = self._begun, None
        return self.step(actions)

    def take_finished(self) -> Finished:
        """Returns the sums over the episodes that ended since the last call; waits for the device."""
        count, returns, lengths = self._finished.tolist()
        self._finished.zero_()
        return Finished(int(count), returns, lengths)

    def snapshot(self) -> dict[str, Any]:
        """Returns the state of all environments as nested dicts of tensors and JSON values."""
        return {"seed": self.seed, "num_envs": self.num_envs, "tensors": {k: v.clone() for k, v in self._all().items()}}

    def restore(self, state: Mapping[str, Any]) -> list[str]:
        """Restores a snapshot exactly, so the list of reasons why it is not exact is empty."""
        if (state.get("num_envs"), state["seed"]) != (self.num_envs, self.seed) or "tensors" not in state:
            raise ValueError(
                f"the snapshot has {state.get('num_envs', 'other')} environments with seed {state['seed']}, "
                f"but this pool has {self.num_envs} with seed {self.seed}"
            )
        if self._obs is None:
            self.reset()
        for name, tensor in self._all().items():
            tensor.copy_(state["tensors"][name])
        return []

    def close(self) -> None:
        """Does nothing: tensors are freed with the pool."""

    def __enter__(self) -> DevicePool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _draws(self) -> Draws:
        return Draws.of(self.seed, self._rows, self._episodes, self._lengths)

    def _keep(self, state: State, obs: Tensor) -> None:
        """Writes in place, so that a captured graph continues from the values of its last replay."""
        if self._obs is None:
            self._state, self._obs = {name: value.clone() for name, value in state.items()}, obs.clone()
            return
        for name, value in state.items():
            self._state[name].copy_(value)
        self._obs.copy_(obs)

    def _all(self) -> dict[str, Tensor]:
        own = {"episodes": self._episodes, "lengths": self._lengths, "returns": self._returns, "obs": self.obs}
        return {**own, "finished": self._finished, **{f"state.{name}": value for name, value in self._state.items()}}


def _where(rows: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return torch.where(rows.view(-1, *[1] * (first.dim() - 1)), first, second)
