"""FrameReplayBuffer: hands out what a ring of whole stacks would, in an eighth of the memory."""

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
    """Steps of every environment, with random frames; `ends` are those of the rows: 1 terminated, 2 truncated."""
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
    """A ring of frames, and one of whole stacks that draws the same rows of it by the same priorities."""
    options = {"stride": envs, "prioritized": True, "gamma": 0.5, **options}
    ring, plain = FrameReplayBuffer(capacity, SPEC, **options), ReplayBuffer(capacity, SPEC, **options)
    for rows in play(ends, envs):
        for each in (ring, plain):
            each.add(rows)
    return ring, plain


def same(batch: Batch, expected: Batch) -> bool:
    alike = {name: column.equal(batch[name]) for name, column in expected.items() if name != "probabilities"}
    return all(alike.values())


ENDS = st.lists(st.sampled_from([0, 0, 0, 0, 1, 2]), min_size=1, max_size=150)


@given(ends=ENDS, capacity=st.integers(24, 60), envs=st.integers(1, 3), n_step=st.integers(1, 3))
def test_batches_are_those_of_a_ring_of_whole_stacks(ends, capacity, envs, n_step):
    if len(ends) < envs:
        return
    ring, plain = filled(ends, capacity, envs=envs, n_step=n_step)
    plain.load_state_dict(ring.state_dict())
    assert same(ring.sample(2 * capacity), plain.sample(2 * capacity))


@given(ends=ENDS, capacity=st.integers(24, 60), envs=st.integers(1, 3))
def test_all_rows_that_are_there_are_drawn_and_no_others(ends, capacity, envs):
    if len(ends) < envs:
        return
    ring, _ = filled(ends, capacity, envs=envs)
    even, _ = filled(ends, capacity, envs=envs, prioritized=False)
    for each in (ring, even):
        numbers = each.sample(3000)["rewards"].unique().tolist()
        assert numbers == list(range(ring.evicted, ring.added))


def test_rows_go_when_their_first_frame_does():
    ring, _ = filled([0] * 29, 30)  # 29 steps of one episode: 30 frames
    assert (len(ring), ring.frames.added) == (29, 30)
    ring, _ = filled([0] * 30, 30)  # frame 0 is gone, and rows 0 to 2 have it in their stacks
    assert list(range(ring.evicted, ring.added)) == list(range(3, 30))


def test_short_episodes_leave_fewer_rows():
    ring, _ = filled([1] * 100, 40)  # two frames a row
    assert len(ring) == 20


@pytest.mark.parametrize("members", [None, 2])
def test_a_ring_goes_on_from_its_parts_bit_for_bit(members):
    games = [list(play([0, 1, 0, 0, 2, 0, 0, 0] * 20, 2)), list(play([0, 0, 0, 0, 0, 0, 1] * 23, 2))]
    steps = [
        {name: torch.stack([one[name], two[name]]) if members else one[name] for name in one}
        for one, two in zip(*games, strict=False)
    ]
    lead = () if members is None else (members,)
    options = {"stride": 2, "prioritized": True, "n_step": 2, "members": members}
    ring, twin = (FrameReplayBuffer(60, SPEC, **options) for _ in range(2))
    for rows in steps[:60]:
        ring.add(rows)
        batch = ring.sample(8, lead)
        ring.set_priorities(batch["slots"], batch["rewards"])
    for mine, other in [(ring, twin)] if members is None else [(ring.member(i), twin.member(i)) for i in range(2)]:
        for name, part in mine.parts().items():
            first = part.added - len(part)
            other.parts()[name].restore(part.rows(first, part.added), first)
        other.load_state_dict(mine.state_dict())
    assert len(twin) == len(ring) > 40
    for rows in steps[60:]:
        for each in (ring, twin):
            each.add(rows)
        assert same(ring.sample(16, lead), twin.sample(16, lead))


def test_an_episode_begins_anew_after_a_cut():
    one, two = play([0] * 5, 1), play([0] * 7, 1)
    ring = FrameReplayBuffer(30, SPEC)
    ring.add(next(one))
    ring.mark_boundary()
    fresh = next(two)
    ring.add({**fresh, "rewards": torch.ones(1)})
    batch = ring.sample(50)
    assert batch["obs"][batch["rewards"] == 1][0].equal(fresh["obs"][0])


def test_an_episode_that_was_lost_ends_in_what_was_last_seen():
    steps = play([0] * 5, 1)
    ring = FrameReplayBuffer(30, SPEC)
    ring.add(next(steps))
    lost = next(steps)
    ring.add({**lost, "next_obs": lost["obs"], "truncated": torch.ones(1)})
    batch = ring.sample(50)
    assert batch["next_obs"][batch["rewards"] == 1][0].equal(lost["obs"][0])


def test_pictures_that_are_no_stacks_are_refused():
    rows = next(play([0], 1))
    with pytest.raises(ValueError, match=r"not stacks of frames.*set stacked_frames to false"):
        FrameReplayBuffer(30, SPEC).add({**rows, "next_obs": rows["next_obs"].flip(1)})


def test_a_first_stack_that_does_not_repeat_its_frame_is_refused():
    first, second = play([0, 0], 1)
    with pytest.raises(ValueError, match="first frame repeated"):
        FrameReplayBuffer(30, SPEC).add(second)
    assert first["obs"].equal(first["obs"][:, :1].expand(-1, STACK, -1, -1))


def test_other_observations_are_refused():
    with pytest.raises(ValueError, match=r"stacks \[frames, height, width\], got float32 of shape \(4,\)"):
        FrameReplayBuffer(30, EnvSpec((4,), "discrete", 2))


def test_a_ring_too_small_for_the_running_stacks_is_refused():
    with pytest.raises(ValueError, match="must hold 16 rows, got 15"):
        FrameReplayBuffer(15, SPEC, stride=2)


def test_rows_come_step_by_step():
    with pytest.raises(ValueError, match="step by step, 2 at once, got 1"):
        FrameReplayBuffer(30, SPEC, stride=2).add(next(play([0], 1)))


def test_a_million_rows_of_atari_take_seven_gigabytes_and_not_fifty_six():
    ring = FrameReplayBuffer(1000, EnvSpec((4, 84, 84), "discrete", 4, "uint8"))
    tensors = [ring.frames.frames, ring.columns.matrix, ring.columns["obs"], ring.columns["next_obs"]]
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors) * 1000
    assert 7.0e9 < size < 7.2e9
