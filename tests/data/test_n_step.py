"""n-step returns of ReplayBuffer equal a plain loop over its transitions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rl_training.data import ReplayBuffer
from rl_training.data.datasets.n_step import with_n_step_returns
from rl_training.data.replay.replay_buffer import n_step_returns
from rl_training.types import Batch, EnvSpec

SPEC = EnvSpec((1,), "discrete", 2)
GAMMA = 0.5  # its powers are exact


def steps(ends: Tensor, first: int = 0) -> Batch:
    """Rows [..., rows] with these ends (0: none, 1: terminated, 2: truncated), with distinct rewards."""
    numbers = torch.arange(first, first + ends.shape[-1]).expand(ends.shape) + 1000 * torch.arange(
        ends[..., 0].numel()
    ).view(*ends.shape[:-1], 1)
    return {
        "obs": numbers.unsqueeze(-1).float(), "actions": numbers % 2, "rewards": numbers.float(),
        "next_obs": numbers.unsqueeze(-1) + 0.5, "dones": (ends == 1).float(), "truncated": (ends == 2).float(),
    }  # fmt: skip


def by_hand(rows: Batch, start: int, *, n_step: int, stride: int) -> dict[str, float]:
    """Expected n-step transition from one of these rows, ordered oldest to newest."""
    total, taken, at = 0.0, 0, start
    while True:
        total += GAMMA**taken * rows["rewards"][at].item()
        taken += 1
        ended = rows["dones"][at].item() + rows["truncated"][at].item() > 0
        if ended or taken == n_step or at + stride >= len(rows["rewards"]):
            break
        at += stride
    last = {name: rows[name][at].item() for name in ("next_obs", "dones", "truncated")}
    return {"rewards": total, "discounts": GAMMA**taken, **last}


def test_three_step_returns_by_hand():
    rewards = torch.tensor([[1.0, 2.0, 4.0], [1.0, 2.0, 4.0], [1.0, 2.0, torch.nan], [1.0, torch.inf, torch.nan]])
    ended = torch.tensor([[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]]) > 0
    returns, last, discounts = n_step_returns(rewards, ended, GAMMA)
    assert returns.tolist() == [3.0, 3.0, 2.0, 1.0]  # 1 + 2 / 2 + 4 / 4, and what is left of it
    assert last.tolist() == [2, 2, 1, 0]
    assert discounts.tolist() == [0.125, 0.125, 0.25, 0.5]


def test_the_next_action_of_a_dataset_is_that_of_the_last_row_counted():
    rows = {**steps(torch.tensor([0, 0, 0, 2])), "next_actions": torch.tensor([5, 6, 7, 8])}
    found = with_n_step_returns(rows, torch.tensor([False, False, False, True]), 2, GAMMA)
    assert found["next_actions"].tolist() == [6, 7, 8, 8]
    assert found["next_obs"].flatten().tolist() == [1.5, 2.5, 3.5, 3.5]


@given(
    ends=st.lists(st.sampled_from([0, 0, 0, 1, 2]), min_size=1, max_size=60),
    capacity=st.integers(4, 40), n_step=st.integers(2, 5), stride=st.integers(1, 4), members=st.sampled_from([None, 2]),
)  # fmt: skip
def test_batches_equal_a_plain_loop(ends, capacity, n_step, stride, members):
    ends = torch.tensor(ends)[: len(ends) // stride * stride]
    if not len(ends):
        return
    lead = () if members is None else (members,)
    ends = torch.stack([ends, ends.flip(0)]) if members else ends
    buffer = ReplayBuffer(capacity, SPEC, stride=stride, n_step=n_step, gamma=GAMMA, members=members)
    for first in range(0, ends.shape[-1], stride):
        buffer.add({name: column.narrow(len(lead), first, stride) for name, column in steps(ends).items()})
    batch = buffer.sample(64, lead)
    for member in range(members or 1):
        mine = {name: column[member] if members else column for name, column in batch.items()}
        living = buffer.rows(buffer.added - len(buffer), buffer.added, member=member if members else None)
        for i in range(64):
            start = living["obs"].flatten().tolist().index(mine["obs"][i].item())
            expected = by_hand(living, start, n_step=n_step, stride=stride)
            assert {name: mine[name][i].item() for name in expected} == expected
            assert mine["actions"][i] == living["actions"][start]


def test_every_transition_is_sampled_including_the_newest():
    buffer = ReplayBuffer(8, SPEC, n_step=3, gamma=GAMMA)
    buffer.add(steps(torch.zeros(8)))
    assert buffer.sample(500)["obs"].unique().tolist() == list(range(8))


def test_one_step_batches_have_no_discounts_column():
    buffer = ReplayBuffer(8, SPEC)
    buffer.add(steps(torch.zeros(8)))
    assert "discounts" not in buffer.sample(2)


def test_n_step_returns_do_not_cross_a_marked_boundary():
    buffer = ReplayBuffer(8, SPEC, stride=2, n_step=3, gamma=GAMMA)
    buffer.add(steps(torch.zeros(4)))
    buffer.mark_boundary()
    buffer.add(steps(torch.zeros(2), first=4))
    assert buffer.rows(0, 6)["truncated"].tolist() == [0, 0, 1, 1, 0, 0]
    batch = buffer.sample(100)
    assert set(zip(batch["obs"].flatten().tolist(), batch["rewards"].tolist(), strict=True)) == {
        (0, 0 + 2 / 2), (1, 1 + 3 / 2), (2, 2), (3, 3), (4, 4), (5, 5),
    }  # fmt: skip


def test_marking_a_boundary_keeps_terminal_rows_and_an_empty_buffer():
    buffer = ReplayBuffer(4, SPEC)
    buffer.mark_boundary()
    buffer.add(steps(torch.ones(1)))
    buffer.mark_boundary()
    assert [buffer.rows(0, 1)[name].item() for name in ("dones", "truncated")] == [1, 0]


def test_only_whole_steps_can_be_added():
    with pytest.raises(ValueError, match="whole steps of 3 environments, got 4"):
        ReplayBuffer(8, SPEC, stride=3).add(steps(torch.zeros(4)))


def test_an_n_step_of_zero_is_rejected():
    with pytest.raises(ValueError, match="n_step must be at least 1, got 0"):
        ReplayBuffer(8, SPEC, n_step=0)
