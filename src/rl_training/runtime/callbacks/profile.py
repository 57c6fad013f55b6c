"""Measures the time that each part of training takes."""

import time
from collections.abc import Sequence
from typing import Any

import torch

from rl_training.runtime.callbacks.logging import LogMetrics
from rl_training.runtime.callbacks.saving import SaveCheckpoints
from rl_training.runtime.callbacks.training import Evaluate
from rl_training.runtime.engine import Callback
from rl_training.runtime.state import TrainerState

CAPTURED = "sample and update"  # one CUDA graph, which cannot be timed in parts
PARTS = (
    "start", "env", "act", "wait", "collect", "sample", "update", CAPTURED, "evaluate", "log", "checkpoint", "rest",
)  # fmt: skip
CALLBACK_PARTS: dict[type[Callback], str] = {Evaluate: "evaluate", LogMetrics: "log", SaveCheckpoints: "checkpoint"}


class Profile(Callback):
    """Seconds per part, excluding nested parts; they sum to the time since the profile was created.

    - `start` is the time before the first step; `collect` includes storing transitions and fitting models.
    - `wait` is the time in which the host waits for the GPU. If updates overlap with the environments, nothing else
      waits, so the parts of the GPU are the time that it takes to launch them.
    - Methods are replaced by timed ones, so that runs without a profile have no overhead.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._stack, self._last, self._synchronize = ["start"], time.perf_counter(), False

    def watch(self, state: TrainerState, callbacks: Sequence[Callback]) -> None:
        updater, lane = state.updater, state.lane
        # CUDA calls return before their work is done.
        self._synchronize = updater.device.type == "cuda" and not lane.overlap
        captured = updater.captured is not None and lane.source.samples_on_device
        self._time(updater, "run", CAPTURED if captured else "update")
        if not captured:
            self._time_sampling(updater)
        self._time(lane, "collect", "collect")
        actor = getattr(getattr(lane, "real", lane), "actor", None)  # model-based lanes wrap a real lane
        if actor is not None and not actor.pool.on_device:  # a graph of several steps cannot be timed in parts
            self._time(actor, "choose", "act")
            self._time(actor.pool, "begin_step", "env")
            self._time(actor.pool, "end_step", "env")
            if updater.device.type == "cuda":
                self._time(actor, "actions_on_host", "wait")
        for callback in callbacks:
            if type(callback) in CALLBACK_PARTS:
                self._time(callback, "on_step_end", CALLBACK_PARTS[type(callback)])
                self._time(callback, "on_train_end", CALLBACK_PARTS[type(callback)])

    def on_train_start(self, state: TrainerState) -> None:
        self._add_elapsed()
        self._stack = ["rest"]

    def summary(self) -> dict[str, float]:
        return {part: self.seconds[part] for part in PARTS if part in self.seconds}

    def _time_sampling(self, updater: Any) -> None:
        """Times the sampling of every source, because a lane may change its source."""
        run, timed_sources = updater.run, set[int]()

        def timed_run(source: Any, count: int) -> Any:
            if id(source) not in timed_sources:
                timed_sources.add(id(source))
                self._time(source, "sample", "sample")
            return run(source, count)

        updater.run = timed_run

    def _time(self, owner: Any, method: str, part: str) -> None:
        function = getattr(owner, method)

        def timed(*arguments: Any, **options: Any) -> Any:
            self._add_elapsed()
            self._stack.append(part)
            try:
                return function(*arguments, **options)
            finally:
                self._add_elapsed()
                self._stack.pop()

        setattr(owner, method, timed)

    def _add_elapsed(self) -> None:
        """Adds the time since the last call to the innermost part."""
        if self._synchronize:
            torch.cuda.synchronize()
        now, part = time.perf_counter(), self._stack[-1]
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._last
        self._last = now
