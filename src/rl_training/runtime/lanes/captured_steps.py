"""Steps of an actor in device environments as one CUDA graph: acting and stepping without a launch from the host."""

from collections.abc import Callable
from typing import Generic

import torch

from rl_training.runtime.lanes.acting import Actor
from rl_training.runtime.lanes.captured_call import CapturedCall, Result
from rl_training.types import Batch, Policy


class CapturedSteps(Generic[Result]):
    """Calls `function`, which steps the actor and reads no value on the host; the next call overwrites its result."""

    def __init__(self, actor: Actor, function: Callable[[], Result]) -> None:
        self.actor, self._function = actor, function
        self._obs, self._noise = actor.obs.clone(), actor.noise_value.clone()
        self._captured = CapturedCall(self._run, actor.generator)

    def __call__(self) -> Result:
        self._obs.copy_(self.actor.obs)
        self._noise.copy_(self.actor.noise_value)
        result = self._captured()
        self.actor.obs, self.actor.noise_value = self._obs, self._noise
        return result

    def _run(self) -> Result:
        """Starts from the actor's state in `_obs` and `_noise` and leaves it there, where the next replay reads it."""
        self.actor.obs, self.actor.noise_value = self._obs, self._noise
        result = self._function()
        self._obs.copy_(self.actor.obs)
        self._noise.copy_(self.actor.noise_value)
        return result


def stacked_steps(actor: Actor, steps: int, *, policy: Policy | None = None, axis: int = 0) -> Batch:
    """Returns the transitions of several steps, stacked along a time axis."""
    rows = [actor.step(actor.choose(policy))[0] for _ in range(steps)]
    return {name: torch.stack([row[name] for row in rows], axis) for name in rows[0]}
