"""The callbacks of a population's members: every event that they act on, and no call for the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rl_training.envs.pools.group import Episode
from rl_training.runtime.engine import Callback, overriding, train
from rl_training.runtime.population import Members, member_states
from rl_training.runtime.state import CollectResult, TrainerState


class Lane:
    stop_by, source, replay = float("inf"), None, None

    def __init__(self, stride: int, step: int = 0) -> None:
        self.step, self.stride = step, stride

    def collect(self, limit: int) -> CollectResult:
        self.step += self.stride
        return CollectResult(self.stride, [Episode(env, 1.0, 1) for env in (1, 2)])

    def due(self) -> int:
        return 0


class Every(Callback):
    def __init__(self) -> None:
        self.steps: list[int] = []
        self.episodes: list[int] = []

    def on_collect_end(self, state: TrainerState, result: CollectResult) -> None:
        self.episodes += [episode.env for episode in result.episodes]

    def on_step_end(self, state: TrainerState) -> None:
        self.steps.append(state.global_step)


class Waiting(Callback):
    only_when_due = True

    def __init__(self, interval: int) -> None:
        self.interval, self.calls = interval, 0
        self.steps: list[int] = []

    def on_step_end(self, state: TrainerState) -> None:
        self.calls += 1
        if state.passed(self.interval) or state.global_step >= state.total_timesteps:
            self.steps.append(state.global_step)


class Stopping(Waiting):  # does not declare `only_when_due` itself
    def on_step_end(self, state: TrainerState) -> None:
        super().on_step_end(state)
        if state.global_step >= 6:
            state.request_stop("enough")


def population(lane: Any, total: int) -> TrainerState:
    updater: Any = SimpleNamespace(members=2, updates=0)
    return TrainerState(updater, lane, total)


@pytest.mark.parametrize("stride", [1, 3])
def test_members_act_at_the_same_steps_as_a_single_run(stride: int):
    alone: Any = [Every(), Waiting(4), Waiting(10)]
    train(population(Lane(stride), 25), alone)
    state = population(Lane(stride), 25)
    members: Any = [(own, [Every(), Waiting(4), Waiting(10)]) for own in member_states(state)]
    train(state, [Members(members, num_envs=2)])
    for member, (_, callbacks) in enumerate(members):
        assert [each.steps for each in callbacks] == [each.steps for each in alone]
        assert callbacks[0].episodes == [1 - member] * len(alone[0].steps)  # 1 of the first, 0 of the second
        assert callbacks[2].calls < len(alone[0].steps)


def test_the_first_step_after_a_resume_may_complete_an_interval_that_began_before():
    state = population(Lane(1, step=12), 20)
    members: Any = [(own, [Waiting(10)]) for own in member_states(state)]
    for own, _ in members:
        own.previous_step = 8
    state.cut = True
    train(state, [Members(members, num_envs=2)])
    assert [callbacks[0].steps for _, callbacks in members] == [[13, 20]] * 2


def test_a_member_that_stops_wakes_the_callbacks_of_the_others():
    state = population(Lane(1), 20)
    first, second = member_states(state)
    waiting = Waiting(10)
    train(state, [Members([(first, [Stopping(10)]), (second, [waiting])], num_envs=2)])
    assert (state.stop_reason, state.global_step) == ("enough", 6)
    assert waiting.calls == 2  # at the first and the last step


def test_only_callbacks_with_a_method_of_their_own_are_called():
    every, waiting, replaced = Every(), Waiting(1), Waiting(1)
    replaced.on_collect_end = lambda state, result: None  # type: ignore[method-assign]
    assert overriding([every, waiting, replaced], "on_collect_end") == [every, replaced]
    assert overriding([every, waiting], "on_update_end") == []
