"""Callbacks for schedules, warnings, evaluation, early stopping and budgets."""

import time
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

from rl_training.envs.interrupts import Interrupted
from rl_training.messages import many
from rl_training.runtime.callbacks.trackers.subject import FLAT
from rl_training.runtime.engine import Callback
from rl_training.runtime.state import Best, TrainerState
from rl_training.schedules import Schedule

LONG_EVALUATION = 5.0  # seconds, after which the state is saved


class Schedules(Callback):
    def __init__(self, schedules: Mapping[str, Schedule], defaults: Mapping[str, float]) -> None:
        self.schedules, self.defaults = schedules, defaults

    def on_train_start(self, state: TrainerState) -> None:
        self.on_step_end(state)

    def on_step_end(self, state: TrainerState) -> None:
        for name, schedule in self.schedules.items():
            state.scheduled[name] = schedule.at(state.progress, self.defaults.get(name, 0.0))
            state.updater.schedule(name, state.scheduled[name])


class LogWarnings(Callback):
    """Logs the first warnings that `check` returns for the last logged metrics."""

    only_when_due = True

    def __init__(self, check: Callable[[Mapping[str, float | None]], list[str]], log: Callable[[str], None]) -> None:
        self.check, self.log, self.done = check, log, False

    def on_step_end(self, state: TrainerState) -> None:
        warnings = [] if self.done else self.check(state.metrics)
        self.done = self.done or bool(warnings)
        for warning in warnings:
            self.log(f"step {state.global_step}: {warning}")


class Evaluate(Callback):
    """Evaluates at each interval and at the end, and records the best score.

    `evaluate` calls its argument after each step. A request to stop ends the evaluation, and the resume repeats it.
    `save` is called once in an evaluation that takes long, so that a crash does not lose the training before it.
    `video` returns the video that records an evaluation, or None.
    """

    evaluates = only_when_due = True

    def __init__(
        self, interval: int, evaluate: Callable[..., dict[str, Any]],
        write: Callable[[dict[str, Any]], None],
    ) -> None:  # fmt: skip
        self.interval, self.evaluate, self.write = interval, evaluate, write
        self.save: Callable[[TrainerState], Any] = lambda state: None
        self.video: Callable[[TrainerState], Any] = lambda state: None

    def on_step_end(self, state: TrainerState) -> None:
        if not (state.evaluation_due or state.passed(self.interval) or state.global_step >= state.total_timesteps):
            return
        state.evaluation_due = True
        try:
            video = self.video(state)
            recording = {} if video is None else {"video": video}
            evaluation = {"step": state.global_step, **self.evaluate(self._watch(state), **recording)}
        except Interrupted:
            return
        state.evaluation, state.evaluation_due = evaluation, False
        row = {"step": state.global_step, "updates": state.updates, "evaluation": state.evaluation}
        self.write({**row, **flat(state.evaluation)})
        score = state.evaluation["return_mean"]
        if state.best is None or score > state.best.score:
            state.best = Best(state.global_step, score)

    def _watch(self, state: TrainerState) -> Callable[[], None]:
        began, saved = time.monotonic(), False

        def watch() -> None:
            nonlocal saved
            if state.stopping:
                raise Interrupted
            if not saved and time.monotonic() - began > LONG_EVALUATION:
                saved = True
                self.save(state)

        return watch


def flat(evaluation: Mapping[str, Any]) -> dict[str, float]:
    """Returns the figures of an evaluation as `eval_…`, for readers that take only numbers."""
    figures = {"return_mean", "return_std", "normalized_score", "success_rate"} & evaluation.keys()
    numbers = {f"{FLAT}{name}": evaluation[name] for name in sorted(figures)}
    return {**numbers, f"{FLAT}length_mean": fmean(evaluation["lengths"])} if evaluation.get("lengths") else numbers


class EarlyStop(Callback):
    """Stops after `patience` evaluations in a row without an improvement of more than `min_delta`."""

    name = "early_stop"
    only_when_due = True

    def __init__(self, patience: int, min_delta: float = 0.0) -> None:
        self.patience, self.min_delta = patience, min_delta
        self.best, self.waited, self.seen = -float("inf"), 0, -1

    def on_step_end(self, state: TrainerState) -> None:
        if state.evaluation is None or state.evaluation["step"] == self.seen:
            return
        self.seen, score = state.evaluation["step"], state.evaluation["return_mean"]
        if score > self.best + self.min_delta:
            self.best, self.waited = score, 0
            return
        self.waited += 1
        if self.waited >= self.patience:
            state.request_stop(f"no improvement in the last {self.waited} evaluations", status="early_stop")

    def state_dict(self) -> dict[str, Any]:
        return {"best": None if self.seen < 0 else self.best, "waited": self.waited, "seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best = -float("inf") if state["best"] is None else state["best"]
        self.waited, self.seen = state["waited"], state["seen"]


class StopAtStep(Callback):
    """Stops at the first boundary at or after a step, before the end of the run."""

    def __init__(self, step: int) -> None:
        self.step = step

    def next_due(self, state: TrainerState) -> int | None:
        return max(self.step, state.global_step + 1)

    def on_train_start(self, state: TrainerState) -> None:
        self.on_step_end(state)

    def on_step_end(self, state: TrainerState) -> None:
        if state.global_step >= self.step:
            state.request_stop(f"reached step {self.step}")


class MaxUpdates(Callback):
    """Stops at the first boundary at or after a number of updates."""

    def __init__(self, max_updates: int) -> None:
        self.max_updates = max_updates

    def next_due(self, state: TrainerState) -> int | None:
        return state.global_step + max(1, self.max_updates - state.updates)  # offline, one step is one update

    def on_step_end(self, state: TrainerState) -> None:
        if state.updates >= self.max_updates:
            state.request_stop(f"reached {many(self.max_updates, 'update')}", status="finished")
