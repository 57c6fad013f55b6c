"""The environments of a population: one pool for all members, which step together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rl_training.envs.pools.pool import EnvPool, Transition


class PopulationPool:
    """A pool whose arrays have a leading member axis; `pools` are the views of the members."""

    on_device = False

    def __init__(self, pool: EnvPool) -> None:
        self.pool, self.spec, self.stacks_frames = pool, pool.spec, pool.stacks_frames
        self.workers, self.source = pool.workers, pool.source
        self.num_envs, count = pool.layout.num_envs, len(pool.layout.seeds)
        self._lead = count, self.num_envs
        still_open = set(range(count))
        self.pools = [MemberPool(pool, member, still_open) for member in range(count)]

    def reset(self) -> np.ndarray:
        return self._by_member(self.pool.reset())

    def begin_step(self, actions: np.ndarray) -> None:
        self.pool.begin_step(actions.reshape(-1, *actions.shape[2:]))

    def end_step(self) -> Transition:
        """Returns arrays of shape [members, environments, ...]; finished episodes count the environments of all."""
        step = self.pool.end_step()
        next_obs = self._by_member(step.next_obs)
        obs = next_obs if step.obs is step.next_obs else self._by_member(step.obs)
        rewards, terminated, truncated = map(self._by_member, (step.rewards, step.terminated, step.truncated))
        return Transition(next_obs, rewards, terminated, truncated, obs, step.finished)

    def _by_member(self, rows: np.ndarray) -> np.ndarray:
        return rows.reshape(*self._lead, *rows.shape[1:])


class MemberPool:
    """The environments of one member. Its snapshots equal those of an `EnvPool` with the member's seed."""

    on_device = False

    def __init__(self, pool: EnvPool, member: int, still_open: set[int]) -> None:
        self._pool, self._member, self._open = pool, member, still_open
        self.spec, self.num_envs = pool.spec, pool.layout.num_envs
        self.resume_kind = pool.resume_kind

    @property
    def obs(self) -> np.ndarray:
        return self._pool.obs[self._pool.layout.rows(self._member)]

    @property
    def restarts(self) -> int:
        """Number of workers of the population that died and were replaced."""
        return self._pool.restarts

    def snapshot(self) -> dict[str, Any]:
        return self._pool.snapshot(self._member)

    def restore(self, state: Mapping[str, Any]) -> list[str]:
        return self._pool.restore(state, self._member)

    def close(self) -> None:
        """The environments of all members close with the last member."""
        self._open.discard(self._member)
        if not self._open:
            self._pool.close()
