"""A collect of the replay lane in device environments, written to the replay buffer without leaving the device."""

from __future__ import annotations

from functools import partial

from rl_training.data import ReplayBuffer
from rl_training.runtime.lanes.acting import Actor
from rl_training.runtime.lanes.captured_steps import CapturedSteps, stacked_steps
from rl_training.types import Policy


class CapturedCollect:
    """Acts, steps and stores `steps` times; on a GPU as one CUDA graph."""

    def __init__(self, actor: Actor, replay: ReplayBuffer, steps: int, random: Policy) -> None:
        self.actor, self.replay, self.steps = actor, replay, steps
        self._with_policy = CapturedSteps(actor, partial(self._collect, None))
        self._at_random = CapturedSteps(actor, partial(self._collect, random))

    @classmethod
    def build(cls, actor: Actor, replay: ReplayBuffer, steps: int, random: Policy) -> CapturedCollect | None:
        """Returns None if the pool or the buffer needs the host, or if the buffer is smaller than a collect."""
        pool = actor.pool
        if not (pool.on_device and pool.capturable and replay.writes_on_device):
            return None
        return cls(actor, replay, steps, random) if steps * pool.num_envs <= replay.capacity else None

    def collect(self, random_steps: int) -> int:
        """Returns the number of environment steps; 0 if only some of them are random, as a graph has one policy."""
        if 0 < random_steps < self.steps * self.actor.pool.num_envs:
            return 0
        (self._at_random if random_steps > 0 else self._with_policy)()
        count = self.steps * int(self.actor.pool.num_envs)
        self.replay.advance(count)
        return count

    def _collect(self, policy: Policy | None) -> None:
        axis = 0 if self.replay.members is None else 1
        rows = stacked_steps(self.actor, self.steps, policy=policy, axis=axis)
        self.replay.write({name: column.flatten(axis, axis + 1) for name, column in rows.items()})
