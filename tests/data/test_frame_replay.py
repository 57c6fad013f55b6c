"""FrameReplayBuffer serves the same batches as a buffer of whole stacks, in an eighth of the memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rl_training.data import FrameReplayBuffer, ReplayBuffer
from rl_training.types import Batch, EnvSpec

STACK = 3
SPEC = EnvSpec((STACK, 2, 2), "discrete", 4, "uint8")


def frames(count: int, generator: torch.Generator) -> Tensor:
    return torch.randint(256, (count, 1, 2, 2), dtype=torch.uint8, generator=generator)


def play(ends: list[int], envs: int) -> Iterator[Batch]:
    """Steps of every environment with random frames; `ends` per row: 1 terminated, 2 truncated."""
    generator = torch.Generator().manual_seed(len(ends))
    obs = frames(envs, generator).expand(-1, STACK, -1, -1)
    for step in range(len(ends) // envs):
        end = torch.tensor(ends[step * envs : (step + 1) * envs])
        next_obs = torch.cat([obs[:, 1:], frames(envs, generator)], 1)
        numbers = torch.arange(step * envs, (step + 1) * envs)
        yield {
            "obs": obs, "actions": numbers % 4, "rewards": numbers.float(), "next_obs": next_obs,
            "dones": (end == 1).float(), "truncated": (end == 2).float(),
        }  # fmt: skip
        first = frames(envs, generator).expand(-1, STACK, -1, -1)
        obs = torch.where(end.view(-1, 1, 1, 1) > 0, first, next_obs)


def filled(ends: list[int], capacity: int, *, envs: int = 1, **options) -> tuple[FrameReplayBuffer, ReplayBuffer]:
    """A frame buffer and a buffer of whole stacks with the same transitions and priorities."""
    options = {"stride": envs, "prioritized": True, "gamma": 0.5, **options}
    buffer, plain = FrameReplayBuffer(capacity, SPEC, **options), ReplayBuffer(capacity, SPEC, **options)
    for rows in play(ends, envs):
        for each in (buffer, plain):
            each.add(rows)
    return buffer, plain


def same(batch: Batch, expected: Batch) -> bool:
    alike = {name: column.equal(batch[name]) for name, column in expected.items() if name != "probabilities"}
    return all(alike.values())


ENDS = st.lists(st.sampled_from([0, 0, 0, 0, 1, 2]), min_size=1, max_size=150)


@given(ends=ENDS, capacity=st.integers(24, 60), envs=st.integers(1, 3), n_step=st.integers(1, 3))
def test_batches_equal_those_of_a_buffer_of_whole_stacks(ends, capacity, envs, n_step):
    if len(ends) < envs:
        return
    buffer, plain = filled(ends, capacity, envs=envs, n_step=n_step)
    plain.load_state_dict(buffer.state_dict())
    assert same(buffer.sample(2 * capacity), plain.sample(2 * capacity))


@given(ends=ENDS, capacity=st.integers(24, 60), envs=st.integers(1, 3))
def test_all_stored_transitions_and_no_others_are_sampled(ends, capacity, envs):
    if len(ends) < envs:
        return
    buffer, _ = filled(ends, capacity, envs=envs)
    even, _ = filled(ends, capacity, envs=envs, prioritized=False)
    for each in (buffer, even):
        numbers = each.sample(3000)["rewards"].unique().tolist()
        assert numbers == list(range(buffer.evicted, buffer.added))


def test_transitions_are_evicted_with_their_first_frame():
    buffer, _ = filled([0] * 29, 30)  # 29 steps of one episode: 30 frames
    assert (len(buffer), buffer.frames.added) == (29, 30)
    buffer, _ = filled([0] * 30, 30)  # frame 0 is overwritten, and rows 0 to 2 use it
    assert list(range(buffer.evicted, buffer.added)) == list(range(3, 30))


def test_short_episodes_leave_room_for_fewer_transitions():
    buffer, _ = filled([1] * 100, 40)  # two frames a row
    assert len(buffer) == 20


@pytest.mark.parametrize("members", [None, 2])
def test_a_restored_buffer_continues_bit_for_bit(members):
    games = [list(play([0, 1, 0, 0, 2, 0, 0, 0] * 20, 2)), list(play([0, 0, 0, 0, 0, 0, 1] * 23, 2))]
    steps = [
        {name: torch.stack([one[name], two[name]]) if members else one[name] for name in one}
        for one, two in zip(*games, strict=False)
    ]
    lead = () if members is None else (members,)
    options = {"stride": 2, "prioritized": True, "n_step": 2, "members": members}
    buffer, twin = (FrameReplayBuffer(60, SPEC, **options) for _ in range(2))
    for rows in steps[:60]:
        buffer.add(rows)
        batch = buffer.sample(8, lead)
        buffer.set_priorities(batch["slots"], batch["rewards"])
    for mine, other in [(buffer, twin)] if members is None else [(buffer.member(i), twin.member(i)) for i in range(2)]:
        for name, part in mine.parts().items():
            first = part.added - len(part)
            other.parts()[name].restore(part.rows(first, part.added), first)
        other.load_state_dict(mine.state_dict())
    assert len(twin) == len(buffer) > 40
    for rows in steps[60:]:
        for each in (buffer, twin):
            each.add(rows)
        assert same(buffer.sample(16, lead), twin.sample(16, lead))


def test_a_new_episode_begins_after_a_marked_boundary():
    one, two = play([0] * 5, 1), play([0] * 7, 1)
    buffer = FrameReplayBuffer(30, SPEC)
    buffer.add(next(one))
    buffer.mark_boundary()
    fresh = next(two)
    buffer.add({**fresh, "rewards": torch.ones(1)})
    batch = buffer.sample(50)
    assert batch["obs"][batch["rewards"] == 1][0].equal(fresh["obs"][0])


def test_an_episode_lost_with_its_worker_ends_in_its_last_observation():
    steps = play([0] * 5, 1)
    buffer = FrameReplayBuffer(30, SPEC)
    buffer.add(next(steps))
    lost = next(steps)
    buffer.add({**lost, "next_obs": lost["obs"], "truncated": torch.ones(1)})
    batch = buffer.sample(50)
    assert batch["next_obs"][batch["rewards"] == 1][0].equal(lost["obs"][0])


def test_stacks_of_one_frame_are_stored():
    buffer = FrameReplayBuffer(30, EnvSpec((1, 2, 2), "discrete", 4, "uint8"))
    stored = [
        {**rows, "obs": rows["obs"][:, -1:], "next_obs": rows["next_obs"][:, -1:]} for rows in play([0, 1, 0, 0], 1)
    ]
    for rows in stored:
        buffer.add(rows)
    batch = buffer.sample(50)
    assert set(batch["rewards"].tolist()) == {0, 1, 2, 3}
    for number, rows in enumerate(stored):
        for name in ("obs", "next_obs"):
            assert (batch[name][batch["rewards"] == number] == rows[name]).all()


def test_images_that_are_not_stacks_are_rejected():
    rows = next(play([0], 1))
    with pytest.raises(ValueError, match=r"not frame stacks.*set stacked_frames to false"):
        FrameReplayBuffer(30, SPEC).add({**rows, "next_obs": rows["next_obs"].flip(1)})


def test_a_first_stack_that_does_not_repeat_its_frame_is_rejected():
    first, second = play([0, 0], 1)
    with pytest.raises(ValueError, match="first frame repeated"):
        FrameReplayBuffer(30, SPEC).add(second)
    assert first["obs"].equal(first["obs"][:, :1].expand(-1, STACK, -1, -1))


def test_other_observations_are_rejected():
    with pytest.raises(ValueError, match=r"observations \[frames, height, width\], got float32 of shape \(4,\)"):
        FrameReplayBuffer(30, EnvSpec((4,), "discrete", 2))


def test_a_capacity_below_the_current_stacks_is_rejected():
    with pytest.raises(ValueError, match="at least 16 for stacks of 3 frames, got 15"):
        FrameReplayBuffer(15, SPEC, stride=2)


def test_only_whole_steps_can_be_added():
    with pytest.raises(ValueError, match="one step of 2 environments at a time, got 1 rows"):
        FrameReplayBuffer(30, SPEC, stride=2).add(next(play([0], 1)))


def test_a_million_atari_transitions_take_7_gigabytes():
    buffer = FrameReplayBuffer(1000, EnvSpec((4, 84, 84), "discrete", 4, "uint8"))
    tensors = [buffer.frames.frames, buffer.columns.matrix, buffer.columns["obs"], buffer.columns["next_obs"]]
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors) * 1000
    assert 7.0e9 < size < 7.2e9
