"""Several seeds trained as one program; each member has the state and callbacks of a single run."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from rl_training.algorithms import Updater
from rl_training.data.replay.replay_buffer import MemberReplay
from rl_training.runtime.callbacks.logging import MembersMetrics
from rl_training.runtime.engine import Callback, dues, end_step, notify, overriding, start
from rl_training.runtime.state import CollectResult, TrainerState
from rl_training.types import UpdateResult


class MemberUpdater:
    """The updater of a population for one member: its schedules and its part of the state."""

    def __init__(self, updater: Updater, member: int) -> None:
        self.updater, self.member = updater, member

    @property
    def updates(self) -> int:
        return self.updater.updates

    def schedule(self, name: str, value: float) -> None:
        if self.member == 0:  # all members share their schedules
            self.updater.schedule(name, value)

    def state_dict(self) -> dict[str, Any]:
        return self.updater.member_state(self.member)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.updater.load_member_state(self.member, state)


class MemberLane:
    """The lane of a population for one member. A single run can resume from its state."""

    def __init__(self, lane: Any, member: int) -> None:
        self.lane, self.member = lane, member

    @property
    def step(self) -> int:
        return int(self.lane.step)

    @property
    def source(self) -> Any:
        return self.lane.source

    @property
    def replay(self) -> MemberReplay | None:
        return None if self.lane.replay is None else self.lane.replay.member(self.member)

    @property
    def _own_source(self) -> Any:
        return self.lane.source if self.replay is None else self.replay

    def replay_parts(self) -> dict[str, Any]:
        return {} if self.replay is None else self.replay.parts()

    def state_dict(self) -> dict[str, Any]:
        state = {"step": self.lane.step, "source": self._own_source.state_dict()}
        return state if self.lane.replay is None else {**state, "actor": self.lane.actor.state_dict(self.member)}

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        self.lane.step = state["step"]
        self._own_source.load_state_dict(state["source"])
        if "actor" not in state:
            return []
        reasons: list[str] = self.lane.actor.load_state_dict(state["actor"], self.member)
        if reasons and self.replay is not None:  # the environments were reset, so the stored episodes end here
            self.replay.mark_boundary()
        return reasons


def member_states(state: TrainerState) -> list[TrainerState]:
    members: list[tuple[Any, Any]] = [
        (MemberUpdater(state.updater, member), MemberLane(state.lane, member))
        for member in range(state.updater.members)
    ]
    return [TrainerState(updater, lane, state.total_timesteps, population=state) for updater, lane in members]


MemberCallbacks = tuple[TrainerState, Sequence[Callback]]


class Members(Callback):
    """Notifies the callbacks of all members, and skips those that are not due."""

    def __init__(self, members: Sequence[MemberCallbacks], *, num_envs: int) -> None:
        self.members, self.num_envs = members, num_envs
        self._due, self._is_first = 0, True  # no callback with `only_when_due` is called before step `_due`
        self._waiting = [(member, [each for each in own if _waits(each)]) for member, own in members]
        self._others = [(member, [each for each in own if not _waits(each)]) for member, own in members]
        self._listening: dict[str, list[MemberCallbacks]] = {}

    def next_due(self, state: TrainerState) -> int | None:
        if state.global_step >= self._due:
            self._due = min((due for member, own in self._waiting for due in dues(own, member)), default=sys.maxsize)
        return min([self._due, *(due for member, own in self._others for due in dues(own, member))])

    def on_train_start(self, state: TrainerState) -> None:
        state.previous_step = self.members[0][0].previous_step  # only the members are restored by a resume
        for member, callbacks in self._members(state, self.members):
            start(member, callbacks)

    def on_collect_end(self, state: TrainerState, result: CollectResult) -> None:
        for number, (member, callbacks) in enumerate(self._listeners("on_collect_end")):
            notify(callbacks, "on_collect_end", member, self._share(result, number))

    def on_update_end(self, state: TrainerState, result: UpdateResult) -> None:
        shared = result._replace(metrics=MembersMetrics(result.metrics))
        for member, callbacks in self._listeners("on_update_end"):
            notify(callbacks, "on_update_end", member, shared)

    def on_step_end(self, state: TrainerState) -> None:
        # The first step may complete a collect that began before a resume, and have passed any interval.
        if self._is_first or state.global_step >= self._due or _ends(state):
            self._end_step(state, self.members)
        else:
            self._end_step(state, self._others)
            if _ends(state):
                self._end_step(state, self._waiting)
        self._is_first = False
        first = self.members[0][0]
        state.metrics, state.evaluation = first.metrics, first.evaluation

    def _end_step(self, state: TrainerState, members: Sequence[MemberCallbacks]) -> None:
        for member, callbacks in self._members(state, members):
            end_step(member, callbacks)

    def on_train_end(self, state: TrainerState) -> None:
        for member, callbacks in self._members(state, self.members):
            notify(callbacks, "on_train_end", member)

    def _listeners(self, event: str) -> list[MemberCallbacks]:
        """Returns the members with those of their callbacks that have a method for an event."""
        if event not in self._listening:
            self._listening[event] = [(member, overriding(own, event)) for member, own in self.members]
        return self._listening[event]

    def _share(self, result: CollectResult, number: int) -> CollectResult:
        if not result.episodes:
            return result
        count = self.num_envs
        own = [e._replace(env=e.env % count) for e in result.episodes if e.env // count == number]
        return CollectResult(result.num_env_steps, own)

    def _members(self, state: TrainerState, members: Sequence[MemberCallbacks]) -> Iterator[MemberCallbacks]:
        """Yields members that have callbacks, with the state of the population; the stop of one member stops it."""
        for member, callbacks in members:
            if not callbacks:
                continue
            member.previous_step, member.lost = state.previous_step, state.lost
            if member.stop_reason is None:
                member.status, member.stop_reason = state.status, state.stop_reason
            yield member, callbacks
            if member.stop_reason is not None:
                state.request_stop(member.stop_reason, status=member.status)


def _ends(state: TrainerState) -> bool:
    return state.stop_reason is not None or state.global_step >= state.total_timesteps


def _waits(callback: Callback) -> bool:
    """Whether a callback is `only_when_due`. A subclass has to declare it again, because its methods may differ."""
    return vars(type(callback)).get("only_when_due", False)
