"""Steps of an actor in device environments as one CUDA graph: acting, stepping and storing on the device."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic

import torch

from rl_training.algorithms.core.graphs import Result
from rl_training.data import ReplayBuffer
from rl_training.runtime.lanes.acting import Actor
from rl_training.runtime.lanes.captured_call import CapturedCall
from rl_training.types import Batch, Policy


class CapturedSteps(Generic[Result]):
    """Calls `function`, which steps the actor and reads no value on the host; the next call overwrites its result."""

    def __init__(self, actor: Actor, function: Callable[[], Result]) -> None:
        self.actor, self._function = actor, function
        self._obs, self._noise = actor.obs.clone(), actor.noise_value.clone()
        self._memory = self._initial_memory()
        self._captured = CapturedCall(self._run, actor.generator)

    def __call__(self) -> Result:
        self._keep()
        result = self._captured()
        self._hand_over()
        return result

    def _run(self) -> Result:
        """Starts from the state that `_keep` has stored and leaves it there, where the next replay reads it."""
        self._hand_over()
        result = self._function()
        self._keep()
        return result

    def _keep(self) -> None:
        """Copies the actor's state to tensors that keep their place."""
        self._obs.copy_(self.actor.obs)
        self._noise.copy_(self.actor.noise_value)
        rows = self._initial_memory() if self.actor.memory.rows is None else self.actor.memory.rows
        for name, kept in self._memory.items():
            kept.copy_(rows[name])

    def _hand_over(self) -> None:
        self.actor.obs, self.actor.noise_value = self._obs, self._noise
        self.actor.memory.rows = dict(self._memory) or None

    def _initial_memory(self) -> Batch:
        """Memory of a recurrent policy at the start of an episode; empty without one."""
        initial = getattr(self.actor.policy, "initial_memory", None)
        found: Batch = {} if initial is None else initial(len(self.actor.obs))
        return found


def stacked_steps(actor: Actor, steps: int, *, policy: Policy | None = None, axis: int = 0) -> Batch:
    """Returns the transitions of several steps, stacked along a time axis."""
    rows = [actor.step(actor.choose(policy))[0] for _ in range(steps)]
    return {name: torch.stack([row[name] for row in rows], axis) for name in rows[0]}


class CapturedCollect:
    """A collect of the replay lane: acts, steps and stores `steps` times; on a GPU as one CUDA graph."""

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
