"""ReplayBuffer replaces its oldest transitions, samples the stored ones and is restored from segments."""

import copy

import pytest
import torch

from rl_training.data import ReplayBuffer
from rl_training.data.sampling import PackedColumns, gather
from rl_training.types import Batch, EnvSpec

BOX = EnvSpec((2,), "box", 3, action_shape=(3,), action_low=(-1.0,) * 3, action_high=(1.0,) * 3)
DISCRETE = EnvSpec((2,), "discrete", 30)


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


def test_new_transitions_replace_the_oldest_when_the_buffer_is_full():
    buffer = ReplayBuffer(5, BOX)
    buffer.add(numbered(0, 4))
    buffer.add(numbered(4, 7))  # one in the last slot, two from slot 0 on
    assert (len(buffer), buffer.added) == (5, 7)
    assert buffer.columns["rewards"].tolist() == [5, 6, 2, 3, 4]
    assert buffer.rows(2, 7)["rewards"].tolist() == [2, 3, 4, 5, 6]


def test_evicted_transitions_cannot_be_read():
    buffer = ReplayBuffer(5, BOX)
    buffer.add(numbered(0, 5))
    buffer.add(numbered(5, 7))
    with pytest.raises(ValueError, match="transitions 1 to 4 are not stored; the buffer holds 2 to 7"):
        buffer.rows(1, 4)


def test_adding_more_than_the_capacity_at_once_is_rejected():
    with pytest.raises(ValueError, match="cannot add 6 transitions at once to a buffer of capacity 5"):
        ReplayBuffer(5, BOX).add(numbered(0, 6))


def test_rows_of_a_wrong_shape_are_refused_with_the_right_ones():
    rows = {**numbered(0, 1), "actions": torch.zeros(1, 2)}
    with pytest.raises(ValueError, match=r"'actions': \(1, 3\).*got .*'actions': \(1, 2\)"):
        ReplayBuffer(5, BOX).add(rows)


def test_an_empty_buffer_cannot_be_sampled():
    with pytest.raises(ValueError, match="empty"):
        ReplayBuffer(5, BOX).sample(1)


def test_exactly_the_added_transitions_are_sampled():
    buffer = ReplayBuffer(100, BOX)
    buffer.add(numbered(0, 3))
    batch = buffer.sample(200, members=(2,))
    assert batch["obs"].shape == (2, 200, 2)
    assert batch["rewards"].unique().tolist() == [0, 1, 2]
    assert torch.equal(batch["next_obs"], batch["obs"] + 1)


def test_sampling_uses_the_buffers_own_generator_and_resumes_with_its_state():
    buffer, twin = ReplayBuffer(50, BOX), ReplayBuffer(50, BOX)
    buffer.seed(1)
    buffer.add(numbered(0, 50))
    buffer.add(numbered(50, 70))
    buffer.sample(8)
    before = torch.get_rng_state()
    twin.restore(buffer.rows(20, 70), start=20)
    twin.load_state_dict(buffer.state_dict())
    assert torch.equal(buffer.sample(32)["rewards"], twin.sample(32)["rewards"])
    assert torch.equal(torch.get_rng_state(), before)


def test_an_earlier_state_can_be_loaded():
    buffer = ReplayBuffer(5, BOX)
    buffer.add(numbered(0, 3))
    earlier = buffer.state_dict()
    buffer.add(numbered(3, 8))
    buffer.load_state_dict(earlier)
    assert (len(buffer), buffer.added) == (3, 3)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_segments_restore_the_buffer_in_any_order_and_old_rows_are_skipped(order):
    segments = [(0, numbered(0, 4)), (4, numbered(4, 8)), (8, numbered(8, 11))]
    buffer = ReplayBuffer(5, BOX)
    for index in order:
        start, rows = segments[index]
        buffer.restore(rows, start)
    assert buffer.added == 11
    assert buffer.rows(6, 11)["rewards"].tolist() == [6, 7, 8, 9, 10]


def test_columns_follow_the_spec_and_extra_columns_are_added():
    pixels = EnvSpec((3, 8, 8), "discrete", 4, "uint8")
    buffer = ReplayBuffer(10, pixels, extra={"discounts": ((), torch.float32)})
    layout = {name: (tuple(column.shape), column.dtype) for name, column in buffer.columns.items()}
    assert layout["obs"] == ((10, 3, 8, 8), torch.uint8)
    assert layout["actions"] == ((10,), torch.int64)
    assert layout["discounts"] == ((10,), torch.float32)


def test_a_capacity_of_zero_is_rejected():
    with pytest.raises(ValueError, match="capacity must be at least 1, got 0"):
        ReplayBuffer(0, BOX)


def test_packed_columns_gather_the_same_rows_as_separate_columns() -> None:
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


@pytest.mark.parametrize("members", [None, 2])
def test_writing_on_the_device_equals_adding(members):
    lead = () if members is None else (members,)
    options = {"members": members, "stride": 2, "n_step": 3, "prioritized": True}
    added, written = (ReplayBuffer(9, DISCRETE, **options) for _ in range(2))
    for start, stop in ((0, 4), (4, 6), (6, 12), (12, 20), (20, 22)):  # past the last slot three times
        rows = {**numbered(start, stop), "actions": torch.arange(start, stop)}
        rows["dones"][1] = 1
        rows = rows if members is None else {name: torch.stack([each, each + 1]) for name, each in rows.items()}
        added.add(rows)
        written.write(rows)
        written.advance(stop - start)
        assert (len(written), written.added) == (len(added), added.added)
        for buffer in (added, written):
            buffer.seed(start)
            buffer.set_priorities(torch.tensor([1, 3]).expand(*lead, 2), torch.tensor([5.0, 0.1]).expand(*lead, 2))
        sampled = written.sample(32, lead)
        assert all(torch.equal(column, sampled[name]) for name, column in added.sample(32, lead).items())
    state, other = added.state_dict(), written.state_dict()
    assert all(torch.equal(column, written.columns[name]) for name, column in added.columns.items())
    assert all(torch.equal(value, other["priorities"][name]) for name, value in state["priorities"].items())


def test_a_copy_of_a_buffer_has_memory_of_its_own():
    buffer = ReplayBuffer(4, BOX)
    buffer.add(numbered(0, 2))
    other = copy.deepcopy(buffer)
    other.add(numbered(5, 6))
    assert other.rows(0, 3)["rewards"].tolist() == [0, 1, 5]
    assert len(buffer) == 2
