"""Returns of several steps: what a plain loop over the rows of a ring would make of them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rl_training.data import ReplayBuffer
from rl_training.data.replay.n_step import n_step_returns
from rl_training.types import Batch, EnvSpec

SPEC = EnvSpec((1,), "discrete", 2)
GAMMA = 0.5  # its powers are exact


def steps(ends: Tensor, first: int = 0) -> Batch:
    """Rows [..., rows] with these ends (0: none, 1: terminated, 2: truncated), whose numbers tell them apart."""
    numbers = torch.arange(first, first + ends.shape[-1]).expand(ends.shape) + 1000 * torch.arange(
        ends[..., 0].numel()
    ).view(*ends.shape[:-1], 1)
    return {
        "obs": numbers.unsqueeze(-1).float(), "actions": numbers % 2, "rewards": numbers.float(),
        "next_obs": numbers.unsqueeze(-1) + 0.5, "dones": (ends == 1).float(), "truncated": (ends == 2).float(),
    }  # fmt: skip


def by_hand(rows: Batch, start: int, *, n_step: int, stride: int) -> dict[str, float]:
    """What looking ahead from one of these rows, the newest last, must give."""
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


def test_a_return_of_three_steps_worked_out():
    rewards = torch.tensor([[1.0, 2.0, 4.0], [1.0, 2.0, 4.0], [1.0, 2.0, torch.nan], [1.0, torch.inf, torch.nan]])
    ended = torch.tensor([[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]]) > 0
    returns, last, discounts = n_step_returns(rewards, ended, GAMMA)
    assert returns.tolist() == [3.0, 3.0, 2.0, 1.0]  # 1 + 2 / 2 + 4 / 4, and what is left of it
    assert last.tolist() == [2, 2, 1, 0]
    assert discounts.tolist() == [0.125, 0.125, 0.25, 0.5]


@given(
    ends=st.lists(st.sampled_from([0, 0, 0, 1, 2]), min_size=1, max_size=60),
    capacity=st.integers(4, 40), n_step=st.integers(2, 5), stride=st.integers(1, 4), members=st.sampled_from([None, 2]),
)  # fmt: skip
def test_batches_are_those_of_a_plain_loop(ends, capacity, n_step, stride, members):
    ends = torch.tensor(ends)[: len(ends) // stride * stride]
    if not len(ends):
        return
    lead = () if members is None else (members,)
    ends = torch.stack([ends, ends.flip(0)]) if members else ends
    ring = ReplayBuffer(capacity, SPEC, stride=stride, n_step=n_step, gamma=GAMMA, members=members)
    for first in range(0, ends.shape[-1], stride):
        ring.add({name: column.narrow(len(lead), first, stride) for name, column in steps(ends).items()})
    batch = ring.sample(64, lead)
    for member in range(members or 1):
        mine = {name: column[member] if members else column for name, column in batch.items()}
        living = ring.rows(ring.added - len(ring), ring.added, member=member if members else None)
        for i in range(64):
            start = living["obs"].flatten().tolist().index(mine["obs"][i].item())
            expected = by_hand(living, start, n_step=n_step, stride=stride)
            assert {name: mine[name][i].item() for name in expected} == expected
            assert mine["actions"][i] == living["actions"][start]


def test_every_row_is_drawn_even_the_newest():
    ring = ReplayBuffer(8, SPEC, n_step=3, gamma=GAMMA)
    ring.add(steps(torch.zeros(8)))
    assert ring.sample(500)["obs"].unique().tolist() == list(range(8))


def test_a_batch_of_one_step_has_no_discounts_of_its_own():
    ring = ReplayBuffer(8, SPEC)
    ring.add(steps(torch.zeros(8)))
    assert "discounts" not in ring.sample(2)


def test_a_return_does_not_run_on_from_rows_that_were_cut():
    ring = ReplayBuffer(8, SPEC, stride=2, n_step=3, gamma=GAMMA)
    ring.add(steps(torch.zeros(4)))
    ring.mark_boundary()
    ring.add(steps(torch.zeros(2), first=4))
    assert ring.rows(0, 6)["truncated"].tolist() == [0, 0, 1, 1, 0, 0]
    batch = ring.sample(100)
    assert set(zip(batch["obs"].flatten().tolist(), batch["rewards"].tolist(), strict=True)) == {
        (0, 0 + 2 / 2), (1, 1 + 3 / 2), (2, 2), (3, 3), (4, 4), (5, 5),
    }  # fmt: skip


def test_cutting_an_empty_ring_or_one_that_ended_changes_nothing():
    ring = ReplayBuffer(4, SPEC)
    ring.mark_boundary()
    ring.add(steps(torch.ones(1)))
    ring.mark_boundary()
    assert [ring.rows(0, 1)[name].item() for name in ("dones", "truncated")] == [1, 0]


def test_rows_must_come_by_whole_steps():
    with pytest.raises(ValueError, match="whole steps of 3 environments, got 4"):
        ReplayBuffer(8, SPEC, stride=3).add(steps(torch.zeros(4)))


def test_nothing_is_no_number_of_steps():
    with pytest.raises(ValueError, match="n_step must be at least 1, got 0"):
        ReplayBuffer(8, SPEC, n_step=0)
