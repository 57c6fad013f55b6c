"""Rows for a model and of a model: bootstraps of what was lived, and a ring of what was imagined."""

from __future__ import annotations

import pytest
import torch

from rl_training.data import ReplayBuffer, TransitionDataset
from rl_training.data.replay.bootstrap import BootstrapSampler
from rl_training.data.replay.model_replay import ModelReplayBuffer
from rl_training.types import Batch, EnvSpec

BOX = EnvSpec((1,), "box", 1, action_shape=(1,), action_low=(-1.0,), action_high=(1.0,))


def numbered(start: int, stop: int) -> Batch:
    numbers = torch.arange(start, stop, dtype=torch.float32)
    zeros = torch.zeros_like(numbers)
    return {"obs": numbers[:, None], "actions": zeros[:, None], "rewards": numbers, "next_obs": numbers[:, None],
            "dones": zeros, "truncated": zeros}  # fmt: skip


def drawn(ring: ReplayBuffer) -> set[float]:
    return set(ring.sample(500)["rewards"].tolist())


def test_only_the_newest_rows_of_a_model_are_drawn():
    ring = ModelReplayBuffer(10, BOX)
    ring.keep(4)
    ring.add(numbered(0, 3))
    assert drawn(ring) == {0, 1, 2}
    ring.add(numbered(3, 6))
    assert (len(ring), drawn(ring)) == (4, {2, 3, 4, 5})
    ring.add(numbered(6, 12))  # round the end of the ring
    assert drawn(ring) == {8, 9, 10, 11}


def test_longer_rollouts_keep_more_rows_and_bring_none_back():
    ring = ModelReplayBuffer(10, BOX)
    ring.keep(2)
    ring.add(numbered(0, 4))
    ring.keep(6)
    assert drawn(ring) == {2, 3}
    ring.add(numbered(4, 7))
    assert drawn(ring) == {2, 3, 4, 5, 6}
    ring.keep(1)
    assert drawn(ring) == {6}


def test_a_model_ring_is_rebuilt_from_its_rows_and_state():
    ring, other = ModelReplayBuffer(10, BOX), ModelReplayBuffer(10, BOX)
    ring.keep(5)
    ring.add(numbered(0, 10))
    ring.add(numbered(10, 13))
    first = ring.added - len(ring)
    other.restore(ring.rows(first, ring.added), first)
    other.load_state_dict(ring.state_dict())
    assert other.sample(50)["rewards"].equal(ring.sample(50)["rewards"])
    assert len(other) == 5


def bootstrap(rows: int, members: int = 3) -> BootstrapSampler:
    return BootstrapSampler(TransitionDataset(numbered(0, rows)), members, torch.Generator().manual_seed(0))


def test_held_out_rows_are_learned_from_by_no_member():
    rows = bootstrap(100)
    learnt, held = rows.split(20)
    assert sorted([*learnt.tolist(), *held.tolist()]) == list(range(100))
    assert not set(held.tolist()) & set(rows.orders.flatten().tolist())
    assert rows.orders.shape == (3, 80)


def test_members_draw_with_replacement_and_each_for_itself():
    rows = bootstrap(1000)
    rows.split(200)
    shares = [len(set(order)) / 800 for order in rows.orders.tolist()]
    assert shares == pytest.approx([0.632] * 3, abs=0.05)  # 1 - 1/e of the rows
    assert not rows.orders[0].equal(rows.orders[1])


def test_a_pass_gives_every_draw_once_and_the_next_in_another_order():
    rows = bootstrap(50)
    rows.split(10)
    kept = rows.orders.sort(1).values
    passes = []
    for _ in range(2):
        rows.shuffle()
        batches = [rows.sample(8)["rewards"] for _ in range(5)]
        assert batches[0].shape == (3, 8)
        passes.append(torch.cat(batches, 1))
        assert passes[-1].sort(1).values.long().equal(kept)
    assert not passes[0].equal(passes[1])


def test_the_last_batch_of_a_pass_is_filled_up_with_its_first_rows():
    rows = bootstrap(13)
    rows.split(3)
    rows.shuffle()
    batches = [rows.sample(4)["rewards"] for _ in range(3)]  # of 10 rows
    assert batches[2][:, 2:].equal(batches[0][:, :2])


def test_a_ring_that_grows_is_split_anew():
    ring = ReplayBuffer(30, BOX)
    ring.add(numbered(0, 10))
    rows = BootstrapSampler(ring, 2, torch.Generator().manual_seed(0))
    rows.split(2)
    assert rows.count == 8
    ring.add(numbered(10, 30))
    rows.split(6)
    assert rows.count == 24
    assert rows.orders.max() > 10
