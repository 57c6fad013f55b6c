"""HindsightReplayBuffer: which goals replace those of a transition, and with which rewards."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.data import HindsightReplayBuffer, ReplayBuffer
from rl_training.data.replay.hindsight_replay import chosen_steps
from rl_training.types import Array, EnvSpec

sys.path.insert(0, str(Path(__file__).parent))
from hindsight_buffers import (  # type: ignore[import-not-found]
    ACHIEVED,
    DESIRED,
    GOAL,
    NUMBER,
    OBSERVATION,
    PARTS,
    SPEC,
    buffer,
    equal_goals,
    goals_of,
    play,
)

sys.path.pop(0)


def same_dones(achieved: Array, goals: Array, dones: Array) -> tuple[Array, Array]:
    return equal_goals(achieved, goals, dones)[0], dones.astype(np.float32)


def test_future_goals_are_those_that_the_episode_achieves_with_the_transition_or_later():
    replay = buffer(goals=8)
    play(replay, [[0], [0], [2], [0], [2], [0]])
    own = {GOAL}
    assert goals_of(replay.sample(2000)) == {
        0: {0, 10, 20} | own, 10: {10, 20} | own, 20: {20} | own,
        30: {30, 40} | own, 40: {40} | own, 50: own,  # the last episode is running
    }  # fmt: skip


@pytest.mark.parametrize(
    ("strategy", "first", "second"), [("final", {20.0}, {40.0}), ("episode", {0, 10, 20}, {30, 40})]
)
def test_goals_of_the_other_strategies(strategy, first, second):
    replay = buffer(goals=16, strategy=strategy)
    play(replay, [[0], [0], [2], [0], [2]])
    found = goals_of(replay.sample(3000))
    assert [found[achieved] - {GOAL} for achieved in (0, 10, 20)] == [first] * 3
    assert [found[achieved] - {GOAL} for achieved in (30, 40)] == [second] * 2


def test_later_steps_are_equally_likely():
    steps = chosen_steps("future", 4, 20_000, np.random.default_rng(0))
    for step, chosen in enumerate(steps):
        counts = np.bincount(chosen, minlength=4)
        assert counts[:step].sum() == 0
        assert counts[step:] == pytest.approx(20_000 / (4 - step), rel=0.06)


def test_rewards_and_terminal_flags_are_those_of_the_new_goal():
    replay = buffer()
    play(replay, [[0], [0], [1]])
    batch = replay.sample(500)
    reached = batch["next_obs"][:, ACHIEVED] == batch["next_obs"][:, DESIRED]
    own, last = batch["next_obs"][:, DESIRED] == GOAL, batch["next_obs"][:, ACHIEVED] == 20
    assert batch["rewards"].equal(reached.float() - 1)
    assert batch["dones"].equal((reached | (own & last)).float())
    assert 0.2 < reached.float().mean() < 0.8


def test_without_terminal_flags_of_the_environment_those_of_the_episode_remain():
    replay = buffer(outcomes=same_dones, strategy="episode")
    play(replay, [[0], [2], [0], [1]])
    batch = replay.sample(500)
    achieved = batch["next_obs"][:, ACHIEVED]
    assert batch["dones"].equal((achieved == 30).float())
    assert batch["truncated"].equal((achieved == 10).float())


def test_an_end_that_another_goal_would_not_cause_is_a_truncation():
    replay = buffer(strategy="episode", goals=8)
    play(replay, [[0], [1]])
    batch = replay.sample(500)
    missed = (batch["next_obs"][:, ACHIEVED] == 10) & (batch["next_obs"][:, DESIRED] == 0)
    assert missed.any()
    assert batch["dones"][missed].eq(0).all()
    assert batch["truncated"][missed].eq(1).all()
    assert (batch["dones"] * batch["truncated"]).eq(0).all()


def test_only_the_desired_goal_changes_and_it_is_the_same_before_and_after_the_step():
    replay, plain = buffer(), ReplayBuffer(100, SPEC)
    play(replay, [[0], [0], [2]])
    batch = replay.sample(300)
    assert batch["obs"][:, DESIRED].equal(batch["next_obs"][:, DESIRED])
    assert batch["next_obs"][:, OBSERVATION].equal(batch["next_obs"][:, ACHIEVED] - 0.5)
    assert batch["obs"][:, OBSERVATION].equal(batch["obs"][:, ACHIEVED] - 0.5)
    assert batch["obs"][:, ACHIEVED].equal(batch["next_obs"][:, ACHIEVED] - 10)
    plain.add(replay.rows(0, 3))  # stored transitions keep their goal
    assert plain.columns["obs"][:3, DESIRED].eq(GOAL).all()


@pytest.mark.parametrize("goals", [1, 4])
def test_share_of_transitions_with_another_goal(goals):
    replay = buffer(goals=goals)
    play(replay, [[0], [0], [0], [2]])
    other = (replay.sample(20_000)["obs"][:, DESIRED] != GOAL).float().mean()
    assert other == pytest.approx(goals / (goals + 1), abs=0.02)


@pytest.mark.parametrize("members", [None, 2])
def test_environments_and_members_have_their_own_episodes(members):
    replay = buffer(goals=16, stride=2, members=members)
    play(replay, [[0, 2], [0, 0], [2, 0], [0, 2]])
    batch = replay.sample(4000, () if members is None else (2,))
    for member in range(members or 1):
        m = 1000.0 * member
        found = goals_of(batch if members is None else {name: each[member] for name, each in batch.items()})
        expected = {0: {0, 10, 20}, 10: {10, 20}, 20: {20}, 30: set(), 1: {1}, 11: {11, 21, 31}, 21: {21, 31}, 31: {31}}
        assert found == {m + key: {m + goal for goal in goals} | {GOAL} for key, goals in expected.items()}


def test_goals_are_of_the_same_episode_while_another_environment_is_in_a_longer_one():
    replay = buffer(goals=16, stride=2)
    play(replay, [[0, 2], [0, 0], [0, 2], [2, 0]])
    expected = {0: {0, 10, 20, 30}, 10: {10, 20, 30}, 20: {20, 30}, 30: {30}, 1: {1}, 11: {11, 21}, 21: {21}, 31: set()}
    assert goals_of(replay.sample(4000)) == {key: goals | {GOAL} for key, goals in expected.items()}


def test_goals_of_overwritten_transitions_are_not_used():
    replay = buffer(6, goals=16)
    play(replay, [[0], [0], [2], [0], [2], [0], [0], [0]])  # transitions 0 and 1 are gone
    own = {GOAL}
    found = goals_of(replay.sample(2000))
    assert found == {20: {20} | own, 30: {30, 40} | own, 40: {40} | own, 50: own, 60: own, 70: own}


def test_an_episode_longer_than_the_buffer_has_goals_where_it_is_stored():
    replay = buffer(4, goals=16)
    play(replay, [[0]] * 9 + [[2]])
    found = goals_of(replay.sample(2000))
    assert found == {60: {60, 70, 80, 90, GOAL}, 70: {70, 80, 90, GOAL}, 80: {80, 90, GOAL}, 90: {90, GOAL}}


def test_goals_depend_on_the_episode_and_the_seed_only():
    rows = []
    for others, seed in ((0, 0), (2, 0), (2, 1)):
        replay = buffer(stride=2, goals=3, goal_seed=seed)
        play(replay, [[0, others]] * 19 + [[2, 2]])
        rows.append(replay.goals.rows(0, 40)["goals"][::2])
    assert rows[0].equal(rows[1])
    assert not rows[0].equal(rows[2])


def test_what_it_refuses():
    with pytest.raises(ValueError, match="n_step must be 1, got 3"):
        buffer(n_step=3)
    with pytest.raises(ValueError, match="one step of 2 environments"):
        play(buffer(stride=2), [[0, 0, 0, 0]])
    for spec, found in (
        (EnvSpec((3,), "discrete", 2), "no such keys"),
        (_spec(achieved_goal=None), "the keys observation, desired"),
    ):
        with pytest.raises(
            ValueError, match=f"observation, achieved_goal, desired_goal, and the environment has {found}"
        ):
            HindsightReplayBuffer(10, spec, outcomes=equal_goals)
    with pytest.raises(ValueError, match="vectors of equal shape"):
        HindsightReplayBuffer(10, _spec(desired_goal={**NUMBER, "shape": [2]}), outcomes=equal_goals)


def _spec(**changes: Any) -> EnvSpec:
    parts = {name: part for name, part in {**PARTS, **changes}.items() if part is not None}
    return EnvSpec((3,), "discrete", 2, obs_space={"type": "Dict", "subspaces": parts})


def test_goals_beside_images_are_replaced_in_their_bytes():
    image = {"type": "Box", "dtype": "uint8", "shape": [1, 8, 8], "layout": "CHW"}
    spec = EnvSpec(
        (64 + 8,), "discrete", 2, "uint8", obs_space={"type": "Dict", "subspaces": {**PARTS, "observation": image}}
    )
    replay = HindsightReplayBuffer(
        10, spec, outcomes=lambda *_: (np.zeros(2, np.float32), np.zeros(2, np.float32)), goals=2, strategy="final"
    )
    replay.seed(0)
    obs = torch.full((1, 72), 9, dtype=torch.uint8)
    obs[0, 64:] = torch.tensor([1.5, GOAL]).view(torch.uint8)
    flags = {"dones": torch.zeros(1), "truncated": torch.ones(1)}
    replay.add(
        {"obs": obs, "actions": torch.zeros(1, dtype=torch.int64), "rewards": torch.ones(1), "next_obs": obs, **flags}
    )
    batch = replay.sample(50)
    assert batch["obs"][:, :64].eq(9).all()
    assert {tuple(row) for row in batch["obs"][:, 64:].contiguous().view(torch.float32).tolist()} == {
        (1.5, 1.5),
        (1.5, GOAL),
    }


def test_bytes_of_a_row_count_its_goals():
    plain = ReplayBuffer.row_bytes(SPEC)
    assert HindsightReplayBuffer.row_bytes(SPEC, goals=4) == plain + 4 * (4 + 4 + 4) + 8
