"""The base class of pools on a device: the contract of `EnvPool`, with tensors instead of arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from rl_training.types import EnvSpec

if TYPE_CHECKING:
    from typing_extensions import Self


class TensorTransition(NamedTuple):
    """One step of the pool; see `rl_training.envs.pools.pool.Transition`. `finished` is counted in the pool instead."""

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
        """Metrics of the episodes; empty if none has ended."""
        if not self.episodes:
            return {}
        return {"episode_return": self.returns / self.episodes, "episode_length": self.lengths / self.episodes}


class TwoPartStep(ABC):
    """`begin_step` and `end_step` for pools that do all the work in one part."""

    def __init__(self) -> None:
        self._begun: Tensor | None = None  # actions of a step that `begin_step` began

    @abstractmethod
    def step(self, actions: Tensor) -> TensorTransition: ...

    def begin_step(self, actions: Tensor) -> None:
        """Keeps the actions; `end_step` does all the work."""
        self._begun = actions

    def end_step(self) -> TensorTransition:
        if self._begun is None:
            raise RuntimeError("call begin_step() before end_step()")
        actions, self._begun = self._begun, None
        return self.step(actions)


class TensorPool(TwoPartStep):
    """Environments stepped together on a device and reset automatically at the end of an episode.

    Finished episodes are summed on the device until `take_finished` reads them.
    """

    on_device = True
    capturable: bool  # whether a CUDA graph can capture a step
    resume_kind = "snapshot"
    replaces_bounds = stacks_frames = False
    notes: tuple[str, ...] = ()
    restarts = workers = 0

    def __init__(self, spec: EnvSpec, num_envs: int, *, seed: int, device: torch.device | str) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}")
        super().__init__()
        self.spec, self.num_envs, self.seed, self.device = spec, num_envs, int(seed), torch.device(device)
        self._episodes, self._lengths = torch.zeros(2, num_envs, dtype=torch.int64, device=self.device)
        self._returns = torch.zeros(num_envs, dtype=torch.float64, device=self.device)
        self._finished = self._returns.new_zeros(num_envs, 3)  # number of episodes, sums of returns and lengths
        self._obs: Tensor | None = None

    @property
    def obs(self) -> Tensor:
        """Observations to act on next; the next step overwrites them."""
        if self._obs is None:
            raise RuntimeError("the pool has no observations yet; call reset() or restore() first")
        return self._obs

    @abstractmethod
    def reset(self) -> Tensor: ...

    def take_finished(self) -> Finished:
        """Returns the sums over the episodes that ended since the last call; waits for the device."""
        count, returns, lengths = self._finished.sum(0).tolist()
        self._finished.zero_()
        return Finished(int(count), returns, lengths)

    def snapshot(self) -> dict[str, Any]:
        """Returns the state of all environments as nested dicts of tensors and JSON values."""
        return {"seed": self.seed, "num_envs": self.num_envs, "tensors": {k: v.clone() for k, v in self._all().items()}}

    def restore(self, state: Mapping[str, Any]) -> list[str]:
        """Restores a snapshot; returns the reasons why it is not exact."""
        if (state.get("num_envs"), state["seed"]) != (self.num_envs, self.seed) or "tensors" not in state:
            raise ValueError(
                f"the snapshot has {state.get('num_envs', 'other')} environments with seed {state['seed']}, "
                f"but this pool has {self.num_envs} with seed {self.seed}"
            )
        if self._obs is None:
            self.reset()
        saved = dict(state["tensors"])
        if saved["finished"].dim() == 1:  # of older versions: sums over the environments
            sums, saved["finished"] = saved["finished"], torch.zeros(self.num_envs, 3)
            saved["finished"][0] = sums
        for name, tensor in self._all().items():
            tensor.copy_(saved[name])
        return []

    def close(self) -> None:
        return None  # tensors are freed with the pool

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _all(self) -> dict[str, Tensor]:
        """All tensors of a snapshot by name."""
        own = {"episodes": self._episodes, "lengths": self._lengths, "returns": self._returns, "obs": self.obs}
        return {**own, "finished": self._finished}

    def _restart_counts(self) -> None:
        for numbers in (self._lengths, self._returns):
            numbers.zero_()

    def _count_ended(self, ended: Tensor) -> None:
        """Adds the episodes that ended to the sums, and starts to count the next ones."""
        episode = torch.stack((torch.ones_like(self._returns), self._returns, self._lengths), 1)
        self._finished += episode * ended.unsqueeze(1)
        self._episodes += ended
        self._lengths *= ~ended
        self._returns *= ~ended


def where_rows(rows: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return torch.where(rows.view(-1, *[1] * (first.dim() - 1)), first, second)
