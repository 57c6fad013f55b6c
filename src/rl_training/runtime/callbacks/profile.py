"""Where the time of a training goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from rl_training.runtime.callbacks.logging import LogMetrics
from rl_training.runtime.callbacks.saving import SaveCheckpoints
from rl_training.runtime.callbacks.training import Evaluate
from rl_training.runtime.engine import Callback
from rl_training.runtime.state import TrainerState

CAPTURED = "sample and update"  # in one CUDA graph, which cannot be looked into
PARTS = ("env", "act", "collect", "sample", "update", CAPTURED, "evaluate", "log", "checkpoint", "rest")
OF_CALLBACKS: dict[type[Callback], str] = {Evaluate: "evaluate", LogMetrics: "log", SaveCheckpoints: "checkpoint"}


class Profile(Callback):
    """Seconds by parts, each without the parts inside it; `collect` is what else a lane does: storing rows, fits.

    It puts timed methods in the place of those it watches, so that whoever does not ask for it pays nothing.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inside, self._since, self._synchronize = ["rest"], 0.0, False

    def watch(self, state: TrainerState, callbacks: Sequence[Callback]) -> None:
        updater, lane = state.updater, state.lane
        self._synchronize = updater.device.type == "cuda"  # whose work is else not done when a call returns
        captured = updater.captured is not None and lane.source.samples_on_device
        self._time(updater, "run", CAPTURED if captured else "update")
        if not captured:
            self._watch_draws(updater)
        self._time(lane, "collect", "collect")
        actor = getattr(getattr(lane, "real", lane), "actor", None)  # a model's lane stands before a real one
        if actor is not None:
            self._time(actor, "choose", "act")
            self._time(actor.pool, "step", "env")
        for callback in callbacks:
            if type(callback) in OF_CALLBACKS:
                self._time(callback, "on_step_end", OF_CALLBACKS[type(callback)])
                self._time(callback, "on_train_end", OF_CALLBACKS[type(callback)])

    def on_train_start(self, state: TrainerState) -> None:
        self._since = time.perf_counter()

    def told(self) -> dict[str, float]:
        """The seconds of every part that has come up, in the order of a turn of the loop."""
        return {part: self.seconds[part] for part in PARTS if part in self.seconds}

    def _watch_draws(self, updater: Any) -> None:
        """Of whichever source is drawn from: a lane may change it as it goes on."""
        run, seen = updater.run, set[int]()

        def watched(source: Any, count: int) -> Any:
            if id(source) not in seen:
                seen.add(id(source))
                self._time(source, "sample", "sample")
            return run(source, count)

        updater.run = watched

    def _time(self, owner: Any, method: str, part: str) -> None:
        setattr(owner, method, self._timed(getattr(owner, method), part))

    def _timed(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            self._charge()
            self._inside.append(part)
            try:
                return function(*arguments, **options)
            finally:
                self._charge()
                self._inside.pop()

        return timed

    def _charge(self) -> None:
        """The time since the last look belongs to the innermost part."""
        if self._synchronize:
            torch.cuda.synchronize()
        now, part = time.perf_counter(), self._inside[-1]
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._since
        self._since = now
