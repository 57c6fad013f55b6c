"""The training loop. Lanes supply batches; everything periodic is a callback."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import dropwhile
from typing import Any, ClassVar

from rl_training.envs.checks.first_steps import describe_failure
from rl_training.envs.checks.user_code import is_raised_here, place_of_error
from rl_training.envs.interrupts import Interrupted
from rl_training.runtime.state import CollectResult, TrainerState
from rl_training.types import UpdateResult

STRIDE = 128  # maximum steps between checks of callbacks and signals; four of the longest captured graphs


class CallbackError(RuntimeError):
    """A callback raised an error."""


class Callback:
    """Base class of callbacks.

    `interval` guarantees a call of `on_step_end` at each of its multiples (offline), or at the end of the rollout or
    collection that crosses it (online).
    """

    name: ClassVar[str] = ""  # the state of a named callback is saved under its name
    evaluates: ClassVar[bool] = False  # sets `state.evaluation_due` until its evaluation has ended
    only_when_due: ClassVar[bool] = False  # `on_step_end` acts only if a callback of the run is due or the run ends
    interval: int = 0

    def on_train_start(self, state: TrainerState) -> None:
        """Called once when training starts or resumes, before any step."""

    def on_collect_end(self, state: TrainerState, result: CollectResult) -> None:
        """Called after environment steps; `result.episodes` holds the episodes that ended."""

    def on_update_end(self, state: TrainerState, result: UpdateResult) -> None:
        """Called after gradient steps; `result.metrics` are tensors on the device."""

    def on_step_end(self, state: TrainerState) -> None:
        """Called once per iteration of the training loop, after its environment steps and updates."""

    def on_train_end(self, state: TrainerState) -> None:
        """Called once, at the end or after a stop."""

    def next_due(self, state: TrainerState) -> int | None:
        """Returns the next step at which `on_step_end` must be called, or None."""
        return (state.global_step // self.interval + 1) * self.interval if self.interval else None

    def state_dict(self) -> dict[str, Any]:
        """Returns what checkpoints store of a named callback."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what `state_dict` returned."""


def train(state: TrainerState, callbacks: Sequence[Callback] = ()) -> TrainerState:
    """Collects, runs the updates that are due and notifies the callbacks, until the last step or a requested stop."""
    state.lane.run_updates = partial(_update, state, callbacks)
    start(state, callbacks)
    while not state.over:
        if not _collect(state, callbacks):
            break
        count = state.lane.due()
        if count:
            _update(state, callbacks, count)
        end_step(state, callbacks)
    if state.stop_reason is None:
        state.status = "finished"
    notify(callbacks, "on_train_end", state)
    return state


def _collect(state: TrainerState, callbacks: Sequence[Callback]) -> bool:
    """Collects once and returns whether the collect is complete. One interrupted by a stop continues on resume."""
    lane = state.lane
    if not state.cut:
        state.previous_step = lane.step
    horizon = min(state.total_timesteps, lane.step + STRIDE, *dues(callbacks, state))
    try:
        result = lane.collect(horizon - lane.step)
    except Interrupted:
        state.lost = True
        state.stop_reason = f"{state.stop_reason} in an environment that did not return; its last steps are not saved"
        return False
    state.cut = result.cut
    notify(callbacks, "on_collect_end", state, result)
    return not result.cut


def _update(state: TrainerState, callbacks: Sequence[Callback], count: int) -> None:
    notify(callbacks, "on_update_end", state, state.updater.run(state.lane.source, count))


def start(state: TrainerState, callbacks: Sequence[Callback]) -> None:
    """Notifies the callbacks, then repeats an evaluation that did not end before a resume."""
    notify(callbacks, "on_train_start", state)
    if state.evaluation_due:
        end_step(state, callbacks)
        state.evaluation_due = state.evaluation_due and state.stopping


def end_step(state: TrainerState, callbacks: Sequence[Callback]) -> None:
    """Calls `on_step_end` of the callbacks. If a stop interrupts an evaluation, resume repeats it and the rest."""
    left = dropwhile(lambda callback: not callback.evaluates, callbacks) if state.evaluation_due else callbacks
    for callback in left:
        call(callback, "on_step_end", state)
        if state.evaluation_due:
            return


def notify(callbacks: Sequence[Callback], event: str, *arguments: Any) -> None:
    for callback in callbacks:
        call(callback, event, *arguments)


def overriding(callbacks: Iterable[Callback], event: str) -> list[Callback]:
    """Returns the callbacks that have their own method for an event; the others need no call."""
    nothing = getattr(Callback, event)
    return [each for each in callbacks if getattr(getattr(each, event), "__func__", None) is not nothing]


def dues(callbacks: Iterable[Callback], state: TrainerState) -> list[int]:
    """Returns the next steps at which `on_step_end` must be called."""
    found = []
    for callback in callbacks:
        due = call(callback, "next_due", state)
        if due is None:
            continue
        if not isinstance(due, int | float) and not hasattr(due, "__index__"):
            raise CallbackError(
                f"callback {type(callback).__name__} must return a step or None in next_due, got {due!r}"
            )
        found.append(due)
    return found


def call(callback: Callback, method: str, *arguments: Any) -> Any:
    """Calls a method of a callback. An error in a callback of the user is raised with its class and line."""
    try:
        return getattr(callback, method)(*arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit, which would end the run without a result
        named = named_failure(callback, method, error)
        if named is error:
            raise
        raise named from error


def named_failure(callback: Callback, method: str, error: BaseException) -> BaseException:
    """Returns an error with the callback's name and the line of the user's code, or `error` itself.

    Only Python's own exceptions are replaced: the caller of the training may catch any other one.
    """
    kind = type(callback)
    if kind.__module__.partition(".")[0] == "rl_training" or type(error).__module__ != "builtins":
        return error
    if isinstance(error, SystemExit):
        if is_raised_here(error):  # a signal has ended a training inside the callback
            return error
        place, code = place_of_error(error), "" if error.code is None else repr(error.code)
        where = "" if place is None else f" ({place})"
        return CallbackError(
            f"callback {kind.__name__} called sys.exit({code}) in {method}{where}; "
            "to end the training, call state.request_stop(reason)"
        )
    return CallbackError(f"callback {kind.__name__} failed in {method}: {describe_failure(error)}")
