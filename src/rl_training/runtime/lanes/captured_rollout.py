"""A rollout in device environments as one CUDA graph: acting and stepping without a launch from the host."""

import gc

import torch

from rl_training.runtime.lanes.acting import Actor
from rl_training.types import Batch

WARM_UPS = 3  # eager rollouts before the capture; they are used like any other


class CapturedRollout:
    """Collects `steps` steps of a device pool, stacked to [time, envs, ...]. The next rollout overwrites them."""

    def __init__(self, actor: Actor, steps: int) -> None:
        self.actor, self.steps = actor, steps
        self.obs = actor.obs.clone()
        self._eager = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._rollout: Batch = {}
        self._stream = torch.cuda.Stream(actor.device)

    def collect(self) -> Batch:
        self.obs.copy_(self.actor.obs)
        if self._graph is None and self._eager >= WARM_UPS:
            self._capture()
        if self._graph is None:
            self._warm_up()
        else:
            self._graph.replay()
        self.actor.obs = self.obs
        return self._rollout

    def _warm_up(self) -> None:
        """Runs on the capture stream, so that lazy allocations happen before the capture."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._rollout = self._collect()
        torch.cuda.current_stream().wait_stream(self._stream)
        self._eager += 1

    def _capture(self) -> None:
        gc.collect()  # freeing an older graph during the capture would invalidate it
        self._graph = torch.cuda.CUDAGraph()
        self._graph.register_generator_state(self.actor.generator)
        with torch.cuda.graph(self._graph, stream=self._stream):
            self._rollout = self._collect()

    def _collect(self) -> Batch:
        self.actor.obs = self.obs
        rows = [self.actor.step(self.actor.choose())[0] for _ in range(self.steps)]
        rollout = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
        self.obs.copy_(self.actor.obs)
        return rollout
