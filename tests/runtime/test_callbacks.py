"""Callbacks in a training loop without real updates."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rl_training.envs.pools.group import Episode
from rl_training.runtime.callbacks.logging import LogMetrics
from rl_training.runtime.callbacks.training import EarlyStop, Evaluate, LogWarnings, MaxUpdates, Schedules, StopAtStep
from rl_training.runtime.engine import STRIDE, Callback, train
from rl_training.runtime.state import Best, CollectResult, TrainerState
from rl_training.schedules import Schedule
from rl_training.types import UpdateResult


class Updates:
    """Counts updates and records scheduled values."""

    def __init__(self) -> None:
        self.updates, self.scheduled = 0, []  # type: int, list[Any]

    def run(self, source: Any, count: int) -> UpdateResult:
        self.updates += count
        return UpdateResult({}, count)

    def schedule(self, name: str, value: float) -> None:
        self.scheduled.append((name, round(value, 6)))


class Time:
    """A lane that collects exactly `limit` steps, like the offline lane."""

    source: Any = None

    def __init__(self) -> None:
        self.step, self.strides, self.owed = 0, [], 0  # type: int, list[int], int

    def collect(self, limit: int) -> CollectResult:
        self.step, self.owed = self.step + limit, limit
        self.strides.append(limit)
        return CollectResult(limit, [Episode(0, float(self.step), limit)])

    def due(self) -> int:
        return self.owed


def state(total: int) -> Any:
    updater: Any = Updates()
    lane: Any = Time()
    return TrainerState(updater, lane, total)


def scores(*values: float) -> Any:
    left = iter(values)
    return lambda watch: {"return_mean": next(left)}


def test_the_loop_stops_at_every_step_that_a_callback_requests():
    class EveryThirty(Callback):
        interval = 30

    now = state(70)
    train(now, [EveryThirty()])
    assert now.lane.strides == [30, 30, 10]
    assert (now.status, now.updates) == ("finished", 70)


def test_the_loop_runs_callbacks_at_least_every_stride():
    now = state(2 * STRIDE + 1)
    train(now)
    assert now.lane.strides == [STRIDE, STRIDE, 1]


def test_a_callback_can_stop_training_with_a_reason():
    class Bored(Callback):
        interval = 10

        def on_step_end(self, state):
            state.request_stop("bored")
            state.request_stop("later reasons do not count")

    done = train(state(100), [Bored()])
    assert (done.global_step, done.status, done.stop_reason) == (10, "stopped", "bored")


def test_max_updates_and_stop_at_step_stop_exactly():
    done = train(state(1000), [MaxUpdates(33)])
    assert (done.updates, done.status, done.stop_reason) == (33, "finished", "reached 33 updates")
    assert train(state(1000), [StopAtStep(40)]).global_step == 40


def test_best_is_the_best_evaluation_and_not_the_last():
    rows: list[Any] = []
    done = train(state(40), [Evaluate(10, scores(1.0, 5.0, 3.0, 4.0), rows.append)])
    assert done.best == Best(step=20, score=5.0)
    assert done.evaluation == {"step": 40, "return_mean": 4.0}
    assert [row["step"] for row in rows] == [10, 20, 30, 40]


def test_early_stopping_waits_for_patience_evaluations():
    callbacks = [Evaluate(10, scores(1.0, 2.0, 1.9, 2.05, 9.0), lambda row: None), EarlyStop(2, min_delta=0.1)]
    done = train(state(100), callbacks)
    # 2.0 is the best; neither 1.9 nor 2.05 improves it by 0.1.
    assert (done.global_step, done.status) == (40, "early_stop")


def test_early_stopping_state_is_restored():
    first, second = EarlyStop(2), EarlyStop(2)
    train(state(20), [Evaluate(10, scores(3.0, 2.0), lambda row: None), first])
    second.load_state_dict(first.state_dict())
    assert (second.best, second.waited, second.seen) == (3.0, 1, 20)


def test_schedules_follow_progress_from_their_start():
    moving = Schedules({"learning_rate": Schedule(end=0.0)}, {"learning_rate": 0.4})
    now = state(20)
    train(now, [type("Ten", (Callback,), {"interval": 10})(), moving])
    assert now.updater.scheduled == [("learning_rate", 0.4), ("learning_rate", 0.2), ("learning_rate", 0.0)]


def test_a_row_has_the_scheduled_values_of_its_updates():
    rows: list[Any] = []
    moving = Schedules({"learning_rate": Schedule(end=0.0)}, {"learning_rate": 0.4})
    train(state(20), [LogMetrics(10, rows.append), type("Ten", (Callback,), {"interval": 10})(), moving])
    assert [(row["step"], row["learning_rate"]) for row in rows] == [(10, 0.4), (20, 0.2)]


def test_a_row_has_the_mean_of_the_episodes_since_the_last_row():
    rows: list[Any] = []
    train(state(40), [LogMetrics(20, rows.append), type("Ten", (Callback,), {"interval": 10})()])
    assert [(row["step"], row["episode_return"], row["episode_length"]) for row in rows] == [(20, 15, 10), (40, 35, 10)]


def test_a_row_keeps_the_last_metrics_of_the_lane_also_after_a_resume():
    log = LogMetrics(10)
    log.on_collect_end(state(40), CollectResult(metrics={"model_loss": torch.tensor(2.0)}))
    log.on_collect_end(state(40), CollectResult())
    resumed = LogMetrics(10)
    resumed.load_state_dict(log.state_dict())
    resumed.on_update_end(state(40), UpdateResult({"loss": torch.tensor(1.0)}, 1))
    assert resumed.last() == {"model_loss": 2.0, "loss": 1.0}


def test_a_row_keeps_the_metrics_of_skipped_phases_also_after_a_resume():
    log = LogMetrics(10)
    for critic, actor in ((1.0, 5.0), (2.0, None), (3.0, 6.0), (4.0, None)):
        losses = {"critic_loss": critic} | ({} if actor is None else {"actor_loss": actor})
        metrics = {name: torch.tensor(value) for name, value in losses.items()}
        log.on_update_end(state(40), UpdateResult(metrics, 1))
    resumed = LogMetrics(10)
    resumed.load_state_dict(log.state_dict())
    assert log.last() == resumed.last() == {"actor_loss": 6.0, "critic_loss": 4.0}


def test_metrics_of_skipped_phases_stay_in_order():
    log, names = LogMetrics(10), [f"metric_{number}" for number in range(20)]
    log.on_update_end(state(40), UpdateResult(dict.fromkeys(names, torch.tensor(1.0)), 1))
    log.on_update_end(state(40), UpdateResult({"loss": torch.tensor(2.0)}, 1))
    assert list(log.last()) == [*names, "loss"]


def test_warnings_about_logged_metrics_are_logged_once():
    def low_returns(metrics):
        return ["returns are low"] if (metrics.get("episode_return") or 0) > 20 else []

    warnings: list[str] = []
    train(state(40), [LogMetrics(10, lambda row: None), LogWarnings(low_returns, warnings.append)])
    assert warnings == ["step 30: returns are low"]  # the return of an episode is its last step


@pytest.mark.parametrize(("before", "after", "passed"), [(0, 9, False), (0, 10, True), (10, 19, False), (9, 31, True)])
def test_an_interval_has_passed_where_a_multiple_was_crossed(before, after, passed):
    now = state(100)
    now.previous_step, now.lane.step = before, after
    assert now.passed(10) is passed
    assert not now.passed(0)
