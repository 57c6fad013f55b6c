"""Prioritized sampling follows the priorities as they are set, overwritten and restored."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_training.data import ReplayBuffer
from rl_training.data.replay.priorities import BLOCK, SMALLEST, Priorities
from rl_training.types import Batch, EnvSpec

SPEC = EnvSpec((1,), "discrete", 2)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbered(start: int, stop: int, members: int | None = None) -> Batch:
    numbers = torch.arange(start, stop) if members is None else torch.arange(start, stop).expand(members, -1)
    number, zeros = numbers.float(), torch.zeros(numbers.shape)
    obs = {"obs": number.unsqueeze(-1), "next_obs": number.unsqueeze(-1) + 1}
    return {**obs, "actions": numbers % 2, "rewards": number, "dones": zeros, "truncated": zeros}


def prioritized_buffer(rows, capacity, **options):
    buffer = ReplayBuffer(capacity, SPEC, prioritized=True, **options)
    buffer.seed(1)
    for first in range(rows):
        buffer.add(numbered(first, first + 1, options.get("members")))
    return buffer


def test_sampling_is_proportional_to_priorities():
    capacity, count = 3 * BLOCK + 5, 20_000
    priorities = Priorities(capacity, alpha=1.0)
    errors = torch.rand(capacity, generator=generator()) ** 3
    priorities.set(torch.arange(capacity), errors)
    expected = (errors + SMALLEST).double() / (errors + SMALLEST).double().sum()
    slots, probabilities = priorities.sample((count,), generator(1))
    torch.testing.assert_close(probabilities, expected[slots])
    # One sample from each stratum: counts differ from their expectation by less than 2.
    assert ((slots.bincount(minlength=capacity) - count * expected).abs() < 2).all()


def test_samples_are_stratified_and_random_within_their_stratum():
    priorities = Priorities(1000)
    priorities.renew(torch.arange(1000))
    draws = torch.stack([priorities.sample((10,), generator(seed))[0] for seed in range(50)])
    assert torch.equal(draws // 100, torch.arange(10).expand(50, 10))  # the i-th in the i-th tenth
    assert draws[:, 0].unique().numel() > 30


def test_errors_are_raised_to_alpha_and_a_zero_error_keeps_a_priority():
    priorities = Priorities(2, alpha=0.5)
    priorities.set(torch.tensor([0, 1]), torch.tensor([-4.0, 0.0]))
    torch.testing.assert_close(
        priorities.values[0, :2], torch.tensor([2.0, 1e-3], dtype=torch.float64), rtol=1e-6, atol=0
    )


def test_an_alpha_of_zero_samples_uniformly():
    buffer = prioritized_buffer(4, 4, priority_alpha=0.0)
    buffer.set_priorities(torch.arange(4), torch.tensor([1.0, 10.0, 100.0, 1000.0]))
    batch = buffer.sample(4)
    assert (batch["slots"].tolist(), batch["probabilities"].tolist()) == ([0, 1, 2, 3], [1, 1, 1, 1])


def test_the_largest_error_of_a_repeated_slot_counts():
    for order in ([1.0, 5.0, 3.0], [5.0, 3.0, 1.0]):
        priorities = Priorities(3, alpha=1.0)
        priorities.set(torch.tensor([1, 1, 1]), torch.tensor(order))
        assert priorities.sums.item() == pytest.approx(5.0)


def test_a_nan_error_does_not_break_sampling():
    priorities = Priorities(3, alpha=1.0)
    priorities.set(torch.arange(3), torch.tensor([1.0, torch.nan, torch.inf]))
    assert priorities.sums.isfinite().all()


@given(st.lists(st.tuples(st.integers(0, 2 * BLOCK), st.floats(0, 1e6)), min_size=1, max_size=40))
def test_block_sums_follow_the_last_priorities(changes):
    priorities, plain = Priorities(2 * BLOCK + 1, alpha=1.0), [0.0] * (2 * BLOCK + 1)
    for slot, error in changes:
        priorities.set(torch.tensor([slot]), torch.tensor([error]))
        plain[slot] = torch.tensor(error).item() + SMALLEST
    blocks = [sum(plain[first : first + BLOCK]) for first in range(0, len(plain), BLOCK)]
    assert priorities.sums.tolist() == pytest.approx(blocks, rel=1e-12)
    slots, _ = priorities.sample((64,), generator())
    assert all(plain[slot] for slot in slots.tolist())


@pytest.mark.parametrize("draw", [0.0, 1.0])
def test_the_extreme_random_numbers_select_slots_with_a_priority(draw, monkeypatch):
    monkeypatch.setattr(torch, "rand", lambda shape, **_: torch.full(shape, draw, dtype=torch.float64))
    priorities = Priorities(3 * BLOCK)
    priorities.renew(torch.tensor([7, BLOCK + 3, BLOCK + 4]))
    slots, probabilities = priorities.sample((1,), generator())
    assert slots.item() == (7 if draw == 0 else BLOCK + 4)
    assert probabilities.item() == pytest.approx(1 / 3)


def test_new_transitions_get_the_largest_priority_so_far():
    buffer = prioritized_buffer(3, 3, priority_alpha=1.0)
    buffer.set_priorities(torch.tensor([0, 1, 2]), torch.tensor([9.0, 1.0, 0.0]))
    buffer.set_priorities(torch.tensor([0]), torch.tensor([1.0]))
    buffer.add(numbered(3, 4))  # into slot 0; the largest was 9
    buffer.add(numbered(4, 5))
    assert buffer.priorities.values[0, :3].tolist() == pytest.approx([9, 9, 0], abs=1e-5)


def test_probabilities_are_relative_to_uniform_sampling():
    buffer = prioritized_buffer(2, 100, priority_alpha=1.0)
    buffer.set_priorities(torch.tensor([0, 1]), torch.tensor([3.0, 1.0]))
    batch = buffer.sample(400)
    assert batch["rewards"].mean().item() == pytest.approx(0.25)
    assert batch["probabilities"].dtype == torch.float32
    torch.testing.assert_close(batch["probabilities"], torch.where(batch["rewards"] == 0, 1.5, 0.5), atol=1e-5, rtol=0)


def test_each_member_has_its_own_priorities():
    buffer = prioritized_buffer(300, 300, members=2, priority_alpha=1.0)
    errors = torch.stack([torch.arange(300) < 3, torch.arange(300) >= 297]).float()
    buffer.set_priorities(torch.arange(300).expand(2, -1), errors)
    batch = buffer.sample(60, (2,))
    assert batch["rewards"][0].unique().tolist() == [0, 1, 2]
    assert batch["rewards"][1].unique().tolist() == [297, 298, 299]
    assert torch.equal(batch["slots"].float(), batch["rewards"])


def test_several_members_can_sample_from_one_buffer():
    buffer = prioritized_buffer(10, 10)
    batch = buffer.sample(10, (3,))
    assert torch.equal(batch["slots"], torch.arange(10).expand(3, 10))


@pytest.mark.parametrize("members", [None, 2])
def test_a_restored_buffer_continues_bit_for_bit(members):
    buffer, twin = prioritized_buffer(500, 400, members=members), prioritized_buffer(0, 400, members=members)
    lead = () if members is None else (members,)
    for seed in range(3):
        buffer.set_priorities(buffer.sample(32, lead)["slots"], torch.rand(*lead, 32, generator=generator(seed)) * 3)
    parts = [(buffer, twin)] if members is None else [(buffer.member(i), twin.member(i)) for i in range(members)]
    for mine, other in parts:
        other.restore(mine.rows(100, 500), 100)
        other.load_state_dict(mine.state_dict())
    for _ in range(3):
        for each in (buffer, twin):
            each.add(numbered(500, 501, members))
        batch, same = buffer.sample(32, lead), twin.sample(32, lead)
        assert all(torch.equal(column, same[name]) for name, column in batch.items())
        for each in (buffer, twin):
            each.set_priorities(batch["slots"], batch["probabilities"])
    assert torch.equal(buffer.priorities.sums, twin.priorities.sums)


def test_a_member_can_be_restored_as_a_single_buffer():
    buffer, alone = prioritized_buffer(50, 40, members=2), prioritized_buffer(0, 40)
    buffer.set_priorities(torch.tensor([[3], [5]]), torch.tensor([[100.0], [200.0]]))
    alone.restore(buffer.member(1).rows(10, 50), 10)
    alone.load_state_dict(buffer.member(1).state_dict())
    assert torch.equal(alone.priorities.values, buffer.priorities.values[1])
    assert alone.priorities.largest == buffer.priorities.largest[1]


def test_only_used_slots_are_saved():
    assert prioritized_buffer(5, 100_000).state_dict()["priorities"]["values"].shape == (5,)


def test_a_uniform_buffer_rejects_priorities():
    with pytest.raises(ValueError, match="prioritized=True"):
        ReplayBuffer(4, SPEC).set_priorities(torch.tensor([0]), torch.tensor([1.0]))


def test_an_alpha_above_one_is_rejected():
    with pytest.raises(ValueError, match=r"priority_alpha must be in \[0, 1\], got 2"):
        Priorities(4, alpha=2)


@pytest.mark.parametrize(("saved", "capacity"), [(40, 32), (40, 3 * BLOCK), (3 * BLOCK, 2 * BLOCK)])
def test_priorities_of_a_buffer_of_another_size_are_refused(saved, capacity):
    state = Priorities(saved).state_dict(used=saved)
    with pytest.raises(ValueError, match=f"the saved priorities do not fit a replay buffer of {capacity} rows"):
        Priorities(capacity).load_state_dict(state)
