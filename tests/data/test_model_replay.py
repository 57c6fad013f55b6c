"""BootstrapSampler resamples real transitions; ModelReplayBuffer keeps the newest model transitions."""

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


def sampled_rewards(buffer: ReplayBuffer) -> set[float]:
    return set(buffer.sample(500)["rewards"].tolist())


def test_only_the_newest_model_transitions_are_sampled():
    buffer = ModelReplayBuffer(10, BOX)
    buffer.keep(4)
    buffer.add(numbered(0, 3))
    assert sampled_rewards(buffer) == {0, 1, 2}
    buffer.add(numbered(3, 6))
    assert (len(buffer), sampled_rewards(buffer)) == (4, {2, 3, 4, 5})
    buffer.add(numbered(6, 12))  # beyond the last slot
    assert sampled_rewards(buffer) == {8, 9, 10, 11}


def test_keeping_more_restores_no_evicted_transition():
    buffer = ModelReplayBuffer(10, BOX)
    buffer.keep(2)
    buffer.add(numbered(0, 4))
    buffer.keep(6)
    assert sampled_rewards(buffer) == {2, 3}
    buffer.add(numbered(4, 7))
    assert sampled_rewards(buffer) == {2, 3, 4, 5, 6}
    buffer.keep(1)
    assert sampled_rewards(buffer) == {6}


def test_a_model_replay_buffer_is_restored_from_its_rows_and_state():
    buffer, other = ModelReplayBuffer(10, BOX), ModelReplayBuffer(10, BOX)
    buffer.keep(5)
    buffer.add(numbered(0, 10))
    buffer.add(numbered(10, 13))
    first = buffer.added - len(buffer)
    other.restore(buffer.rows(first, buffer.added), first)
    other.load_state_dict(buffer.state_dict())
    assert other.sample(50)["rewards"].equal(buffer.sample(50)["rewards"])
    assert len(other) == 5


def bootstrap(rows: int, members: int = 3) -> BootstrapSampler:
    return BootstrapSampler(TransitionDataset(numbered(0, rows)), members, torch.Generator().manual_seed(0))


def test_no_member_trains_on_held_out_rows():
    rows = bootstrap(100)
    learnt, held = rows.split(20)
    assert sorted([*learnt.tolist(), *held.tolist()]) == list(range(100))
    assert not set(held.tolist()) & set(rows.orders.flatten().tolist())
    assert rows.orders.shape == (3, 80)


def test_members_are_resampled_independently_with_replacement():
    rows = bootstrap(1000)
    rows.split(200)
    shares = [len(set(order)) / 800 for order in rows.orders.tolist()]
    assert shares == pytest.approx([0.632] * 3, abs=0.05)  # 1 - 1/e of the rows
    assert not rows.orders[0].equal(rows.orders[1])


def test_an_epoch_serves_every_row_once_in_a_new_order():
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


def test_the_last_batch_of_an_epoch_wraps_to_its_first_rows():
    rows = bootstrap(13)
    rows.split(3)
    rows.shuffle()
    batches = [rows.sample(4)["rewards"] for _ in range(3)]  # of 10 rows
    assert batches[2][:, 2:].equal(batches[0][:, :2])


def test_a_growing_buffer_can_be_split_again():
    buffer = ReplayBuffer(30, BOX)
    buffer.add(numbered(0, 10))
    rows = BootstrapSampler(buffer, 2, torch.Generator().manual_seed(0))
    rows.split(2)
    assert rows.count == 8
    buffer.add(numbered(10, 30))
    rows.split(6)
    assert rows.count == 24
    assert rows.orders.max() > 10
