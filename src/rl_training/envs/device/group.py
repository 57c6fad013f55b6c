"""The device pools of a population; tensors have a leading member axis."""

from collections.abc import Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

from rl_training.envs.device.contract import TensorPool, TensorTransition, TwoPartStep
from rl_training.envs.device.pool import DevicePool

Pool = TypeVar("Pool", bound=TensorPool)


class PoolGroup(TwoPartStep, Generic[Pool]):
    on_device = True
    capturable = stacks_frames = False

    def __init__(self, pools: Sequence[Pool]) -> None:
        super().__init__()
        self.pools, self.spec, self.num_envs = pools, pools[0].spec, pools[0].num_envs


class StackedPools(PoolGroup[TensorPool]):
    """Pools that are stepped in turn."""

    @property
    def obs(self) -> Tensor:
        return torch.stack([pool.obs for pool in self.pools])

    def reset(self) -> Tensor:
        return torch.stack([pool.reset() for pool in self.pools])

    def step(self, actions: Tensor) -> TensorTransition:
        stepped = [pool.step(own) for pool, own in zip(self.pools, actions, strict=True)]
        next_obs, rewards, terminated, truncated, obs = map(torch.stack, zip(*(s[:-1] for s in stepped), strict=True))
        return TensorTransition(next_obs, rewards, terminated, truncated, obs)


class DevicePoolGroup(PoolGroup[DevicePool]):
    """Steps all environments as one pool. Each has the trajectories that it has in a pool of its member alone.

    `pools` are views of it, for the snapshots of the members.
    """

    capturable = True

    def __init__(self, pools: Sequence[DevicePool]) -> None:
        super().__init__(pools)
        self._whole = DevicePool.joined(pools)

    @property
    def obs(self) -> Tensor:
        return self._by_member(self._whole.obs)

    def reset(self) -> Tensor:
        self._whole.reset()
        for member, pool in enumerate(self.pools):
            pool.view(self._whole, member * self.num_envs)
        return self.obs

    def step(self, actions: Tensor) -> TensorTransition:
        stepped = self._whole.step(actions.flatten(0, 1))
        next_obs, rewards, terminated, truncated, obs = map(self._by_member, stepped[:-1])
        return TensorTransition(next_obs, rewards, terminated, truncated, obs)

    def _by_member(self, rows: Tensor) -> Tensor:
        return rows.unflatten(0, (len(self.pools), self.num_envs))


def grouped(pools: Sequence[TensorPool]) -> TensorPool | StackedPools | DevicePoolGroup:
    """The pool of a run, or of all members of a population."""
    if len(pools) == 1:
        return pools[0]
    on_device = [pool for pool in pools if isinstance(pool, DevicePool)]
    return DevicePoolGroup(on_device) if on_device else StackedPools(pools)
