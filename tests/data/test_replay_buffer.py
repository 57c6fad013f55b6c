"""ReplayBuffer: a ring that wraps, samples what it holds, and can be rebuilt from segments."""

import pytest
import torch

from rl_training.data import ReplayBuffer
from rl_training.data.sampling import PackedColumns, gather
from rl_training.types import Batch, EnvSpec

BOX = EnvSpec((2,), "box", 3, action_shape=(3,), action_low=(-1.0,) * 3, action_high=(1.0,) * 3)


def numbered(start: int, stop: int) -> Batch:
    numbers = torch.arange(start, stop, dtype=torch.float32)
    zeros = torch.zeros_like(numbers)
    return {
        "obs": numbers[:, None].expand(-1, 2),
        "actions": torch.zeros(len(numbers), 3),
        "rewards": numbers,
        "next_obs": numbers[:, None].expand(-1, 2) + 1,
        "dones": zeros,
        "truncated": zeros,
    }


def test_the_oldest_rows_make_room_when_the_ring_wraps():
    ring = ReplayBuffer(5, BOX)
    ring.add(numbered(0, 4))
    ring.add(numbered(4, 7))  # one row before the end of the ring, two after it
    assert (len(ring), ring.added) == (5, 7)
    assert ring.columns["rewards"].tolist() == [5, 6, 2, 3, 4]
    assert ring.rows(2, 7)["rewards"].tolist() == [2, 3, 4, 5, 6]


def test_rows_that_have_left_the_ring_cannot_be_read():
    ring = ReplayBuffer(5, BOX)
    ring.add(numbered(0, 5))
    ring.add(numbered(5, 7))
    with pytest.raises(ValueError, match="rows 1 to 4 are not in the ring, which holds 2 to 7"):
        ring.rows(1, 4)


def test_more_rows_than_the_ring_holds_are_refused():
    with pytest.raises(ValueError, match="cannot add 6 rows at once to a buffer of capacity 5"):
        ReplayBuffer(5, BOX).add(numbered(0, 6))


def test_rows_of_a_wrong_shape_are_refused_with_the_right_ones():
    rows = {**numbered(0, 1), "actions": torch.zeros(1, 2)}
    with pytest.raises(ValueError, match=r"'actions': \(1, 3\).*got .*'actions': \(1, 2\)"):
        ReplayBuffer(5, BOX).add(rows)


def test_an_empty_ring_cannot_be_sampled():
    with pytest.raises(ValueError, match="empty"):
        ReplayBuffer(5, BOX).sample(1)


def test_only_rows_that_were_added_are_drawn_and_each_of_them():
    ring = ReplayBuffer(100, BOX)
    ring.add(numbered(0, 3))
    batch = ring.sample(200, members=(2,))
    assert batch["obs"].shape == (2, 200, 2)
    assert batch["rewards"].unique().tolist() == [0, 1, 2]
    assert torch.equal(batch["next_obs"], batch["obs"] + 1)


def test_draws_come_from_the_rings_own_generator_and_resume_with_its_state():
    ring, twin = ReplayBuffer(50, BOX), ReplayBuffer(50, BOX)
    ring.seed(1)
    ring.add(numbered(0, 50))
    ring.add(numbered(50, 70))
    ring.sample(8)
    before = torch.get_rng_state()
    twin.restore(ring.rows(20, 70), start=20)
    twin.load_state_dict(ring.state_dict())
    assert torch.equal(ring.sample(32)["rewards"], twin.sample(32)["rewards"])
    assert torch.equal(torch.get_rng_state(), before)


def test_a_ring_can_go_back_to_an_earlier_state():
    ring = ReplayBuffer(5, BOX)
    ring.add(numbered(0, 3))
    earlier = ring.state_dict()
    ring.add(numbered(3, 8))
    ring.load_state_dict(earlier)
    assert (len(ring), ring.added) == (3, 3)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_segments_rebuild_the_ring_in_any_order_and_stale_rows_are_passed_over(order):
    segments = [(0, numbered(0, 4)), (4, numbered(4, 8)), (8, numbered(8, 11))]
    ring = ReplayBuffer(5, BOX)
    for index in order:
        start, rows = segments[index]
        ring.restore(rows, start)
    assert ring.added == 11
    assert ring.rows(6, 11)["rewards"].tolist() == [6, 7, 8, 9, 10]


def test_columns_follow_the_spec_and_extra_ones_are_kept_beside():
    pixels = EnvSpec((3, 8, 8), "discrete", 4, "uint8")
    ring = ReplayBuffer(10, pixels, extra={"discounts": ((), torch.float32)})
    layout = {name: (tuple(column.shape), column.dtype) for name, column in ring.columns.items()}
    assert layout["obs"] == ((10, 3, 8, 8), torch.uint8)
    assert layout["actions"] == ((10,), torch.int64)
    assert layout["discounts"] == ((10,), torch.float32)


def test_a_capacity_of_nothing_is_refused():
    with pytest.raises(ValueError, match="capacity must be at least 1, got 0"):
        ReplayBuffer(0, BOX)


def test_packed_columns_hand_out_what_separate_ones_would() -> None:
    columns = {
        "obs": torch.arange(12.0).view(4, 3),
        "frames": torch.arange(16, dtype=torch.uint8).view(4, 2, 2),
        "rewards": torch.tensor([0.5, 1.5, 2.5, 3.5]),
        "grid": torch.arange(16.0).view(4, 2, 2),
    }
    packed = PackedColumns.of(columns, "cpu")
    rows = torch.tensor([[3, 0], [1, 1]])
    for name, column in gather(packed, rows).items():
        assert torch.equal(packed[name], columns[name])
        assert torch.equal(column, columns[name][rows])
    assert packed["obs"].untyped_storage().data_ptr() == packed["rewards"].untyped_storage().data_ptr()
