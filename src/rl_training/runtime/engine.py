"""The one training loop. Lanes say where batches come from; callbacks say what else happens, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rl_training.runtime.state import CollectResult, TrainerState
from rl_training.types import UpdateResult

STRIDE = 128  # most steps between two looks at callbacks and signals; four of the longest captured graphs


class Callback:
    """Override what you need. `interval` asks that training pause at its multiples; see `TrainerState.passed`."""

    name: ClassVar[str] = ""  # callbacks with a name have their state saved under it
    interval: int = 0

    def on_train_start(self, state: TrainerState) -> None: ...
    def on_collect_end(self, state: TrainerState, result: CollectResult) -> None: ...
    def on_update_end(self, state: TrainerState, result: UpdateResult) -> None: ...
    def on_step_end(self, state: TrainerState) -> None: ...
    def on_train_end(self, state: TrainerState) -> None: ...

    def next_due(self, state: TrainerState) -> int | None:
        """The step that training must not run past unseen."""
        return (state.global_step // self.interval + 1) * self.interval if self.interval else None

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def train(state: TrainerState, callbacks: Sequence[Callback] = ()) -> TrainerState:
    """Collect, run the updates that are due, tell the callbacks; until time is up or someone asks to stop."""
    updater, lane = state.updater, state.lane
    notify(callbacks, "on_train_start", state)
    while not state.over:
        state.previous_step = lane.step
        dues = (callback.next_due(state) for callback in callbacks)
        horizon = min(state.total_timesteps, lane.step + STRIDE, *(due for due in dues if due is not None))
        notify(callbacks, "on_collect_end", state, lane.collect(horizon - lane.step))
        count = lane.due()
        if count:
            notify(callbacks, "on_update_end", state, updater.run(lane.source, count))
        notify(callbacks, "on_step_end", state)
    if state.stop_reason is None:
        state.status = "finished"
    notify(callbacks, "on_train_end", state)
    return state


def notify(callbacks: Sequence[Callback], event: str, *arguments: Any) -> None:
    for callback in callbacks:
        getattr(callback, event)(*arguments)
