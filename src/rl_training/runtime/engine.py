"""The training loop. Lanes supply batches; everything periodic is a callback."""

from collections.abc import Sequence
from typing import Any, ClassVar

from rl_training.runtime.state import CollectResult, TrainerState
from rl_training.types import UpdateResult

STRIDE = 128  # maximum steps between checks of callbacks and signals; four of the longest captured graphs


class Callback:
    """Base class of callbacks.

    `interval` guarantees a call of `on_step_end` at each of its multiples (offline), or at the end of the rollout or
    collection that crosses it (online).
    """

    name: ClassVar[str] = ""  # the state of a named callback is saved under its name
    interval: int = 0

    def on_train_start(self, state: TrainerState) -> None: ...
    def on_collect_end(self, state: TrainerState, result: CollectResult) -> None: ...
    def on_update_end(self, state: TrainerState, result: UpdateResult) -> None: ...
    def on_step_end(self, state: TrainerState) -> None: ...
    def on_train_end(self, state: TrainerState) -> None: ...

    def next_due(self, state: TrainerState) -> int | None:
        """Returns the next step at which `on_step_end` must be called, or None."""
        return (state.global_step // self.interval + 1) * self.interval if self.interval else None

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def train(state: TrainerState, callbacks: Sequence[Callback] = ()) -> TrainerState:
    """Collects, runs the updates that are due and notifies the callbacks, until the last step or a requested stop."""
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
