"""A HindsightReplayBuffer that is saved and restored continues like the first."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from rl_training.types import Batch

sys.path.insert(0, str(Path(__file__).parent))
from hindsight_buffers import GOAL, buffer, goals_of, play  # type: ignore[import-not-found]

sys.path.pop(0)


def saved(replay: Any) -> tuple[dict[str, Any], dict[str, tuple[int, Batch]]]:
    parts = {}
    for name, part in replay.parts().items():
        start = part.added - len(part)
        parts[name] = start, part.rows(start, part.added)
    return replay.state_dict(), parts


@pytest.mark.parametrize("capacity", [100, 7])
@pytest.mark.parametrize("steps", range(1, 12))
def test_a_restored_buffer_goes_on_like_the_first(steps, capacity):
    ends = [[0, 2], [0, 0], [2, 0], [0, 1], [0, 0], [0, 0], [0, 2], [2, 0], [0, 0], [0, 2], [2, 2], [0, 0]]
    whole, restored = (buffer(capacity, stride=2, prioritized=True) for _ in range(2))
    play(whole, ends[:steps])
    state, parts = saved(whole)
    for name, (start, rows) in parts.items():
        restored.parts()[name].restore(rows, start)
    restored.load_state_dict(state)
    for replay in (whole, restored):
        play(replay, ends[steps:])
    for one, other in zip(whole.sample(64).values(), restored.sample(64).values(), strict=True):
        assert one.equal(other)
    (_, first), (_, second) = saved(whole), saved(restored)
    for name, (start, rows) in first.items():
        assert start == second[name][0]
        assert all(rows[column].equal(second[name][1][column]) for column in rows)


def test_members_are_saved_and_restored_one_by_one():
    whole, restored = (buffer(stride=2, members=2) for _ in range(2))
    play(whole, [[0, 2], [0, 0], [2, 0], [0, 0]])
    for member in range(2):
        state, parts = saved(whole.member(member))
        for name, (start, rows) in parts.items():
            restored.member(member).parts()[name].restore(rows, start)
        restored.member(member).load_state_dict(state)
    for replay in (whole, restored):
        play(replay, [[2, 2], [0, 0]])
    one, other = whole.sample(64, (2,)), restored.sample(64, (2,))
    assert all(one[name].equal(other[name]) for name in one)


def test_saved_goals_do_not_change_later():
    replay = buffer(stride=2)
    earlier: dict[int, Any] = {}
    for end in [[0, 2], [0, 2], [2, 0], [0, 0], [0, 2], [2, 2]]:
        play(replay, [end])
        part = replay.parts()["goals"]
        for number, goals in earlier.items():
            assert part.rows(number, number + 1)["goals"].equal(goals)
        earlier = {number: part.rows(number, number + 1)["goals"] for number in range(part.added)}
    assert len(earlier) == 12


def test_rows_without_goals_are_saved_as_zeros():
    replay = buffer(4)
    play(replay, [[2], [0], [0], [0], [0]])  # transition 4 is in the slot of transition 0, whose episode has ended
    rows = replay.goals.rows(1, 5)
    assert rows["numbers"].tolist() == [-1] * 4
    assert not any(rows[name].any() for name in ("goals", "rewards", "dones"))


def test_episodes_that_a_resume_cuts_get_no_goals():
    replay = buffer()
    play(replay, [[0], [0]])
    replay.mark_boundary()
    play(replay, [[0], [2]])
    found = goals_of(replay.sample(500))
    assert found[0] == found[10] == {GOAL}
    assert found[20] <= {20, 30, GOAL}
