"""Steps of an actor in device environments as one CUDA graph: acting and stepping without a launch from the host."""

import gc
from collections.abc import Callable
from typing import Generic, TypeVar

import torch

from rl_training.runtime.lanes.acting import Actor
from rl_training.types import Batch, Policy

WARM_UPS = 3  # eager calls before the capture; they are used like any other
Result = TypeVar("Result")


class CapturedSteps(Generic[Result]):
    """Calls `function`, which steps the actor and reads no value on the host; the next call overwrites its result.

    On a GPU, the calls after the first three are replays of one CUDA graph.
    """

    def __init__(self, actor: Actor, function: Callable[[], Result]) -> None:
        self.actor, self._function = actor, function
        self._obs, self._noise = actor.obs.clone(), actor.noise_value.clone()
        self._eager = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Result
        self._stream = torch.cuda.Stream(actor.device) if actor.device.type == "cuda" else None

    def __call__(self) -> Result:
        self._obs.copy_(self.actor.obs)
        self._noise.copy_(self.actor.noise_value)
        if self._stream is not None and self._graph is None and self._eager >= WARM_UPS:
            self._capture(self._stream)
        if self._graph is not None:
            self._graph.replay()
        elif self._stream is not None:
            self._warm_up(self._stream)
        else:
            self._result = self._run()
        self.actor.obs, self.actor.noise_value = self._obs, self._noise
        return self._result

    def _warm_up(self, stream: torch.cuda.Stream) -> None:
        """Runs on the capture stream, so that lazy allocations happen before the capture."""
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._result = self._run()
        torch.cuda.current_stream().wait_stream(stream)
        self._eager += 1

    def _capture(self, stream: torch.cuda.Stream) -> None:
        gc.collect()  # freeing an older graph during the capture would invalidate it
        self._graph = torch.cuda.CUDAGraph()
        self._graph.register_generator_state(self.actor.generator)
        with torch.cuda.graph(self._graph, stream=stream):
            self._result = self._run()

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
