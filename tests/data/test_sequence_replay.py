"""Windows of RecurrentReplayBuffer: their records, their starts and their initial latents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from rl_training.data import RecurrentReplayBuffer
from rl_training.runtime.checkpoints.reading import read_checkpoint
from rl_training.runtime.checkpoints.replay_segments import ReplaySegments
from rl_training.runtime.checkpoints.writing import save_checkpoint
from rl_training.types import Batch, EnvSpec

PIXEL = EnvSpec((1,), "discrete", 5, "uint8")


class World:
    """An environment that counts: episode e shows 10e, 10e + 1, …; action and reward of a step are its number."""

    def __init__(self, lengths: Sequence[int], *, cut: Sequence[int] = ()) -> None:
        self.steps: list[Batch] = []
        for episode, length in enumerate(lengths):
            for step in range(length):
                over = step == length - 1
                seen = torch.tensor([[10 * episode + step]])
                self.steps.append({
                    "obs": seen.byte(), "actions": torch.tensor([step + 1]), "rewards": torch.tensor([step + 1.0]),
                    "next_obs": (seen + 1).byte(), "dones": torch.tensor([float(over and episode not in cut)]),
                    "truncated": torch.tensor([float(over and episode in cut)]),
                })  # fmt: skip


def together(*worlds: World) -> list[Batch]:
    """The steps of several environments in one batch."""
    return [
        {name: torch.cat([step[name] for step in steps]) for name in steps[0]}
        for steps in zip(*(world.steps for world in worlds), strict=True)
    ]


def filled(steps: Sequence[Batch], capacity: int = 100, **options: Any) -> RecurrentReplayBuffer:
    buffer = RecurrentReplayBuffer(capacity, PIXEL, **{"window": 4, **options})
    for step in steps:
        buffer.add(step)
    return buffer


def served(buffer: RecurrentReplayBuffer, count: int) -> list[list[int]]:
    """Observations of `count` sampled windows."""
    pixels: list[list[int]] = buffer.sample(count)["obs"].squeeze(-1).tolist()
    return pixels


def test_each_observation_is_a_record_with_the_reward_received_with_it():
    batch = filled(World([2, 2], cut=[0]).steps, window=6).sample(1)
    assert {name: batch[name].flatten().tolist() for name in batch if name != "rows"} == {
        "obs": [0, 1, 2, 10, 11, 12],
        "actions": [1, 2, 0, 1, 2, 0],  # zero action at the last observation of an episode
        "previous_actions": [0, 1, 2, 0, 1, 2],
        "rewards": [0, 1, 2, 0, 1, 2],  # zero reward at its first
        "is_first": [1, 0, 0, 1, 0, 0],
        "is_last": [0, 0, 1, 0, 0, 1],
        "dones": [0, 0, 0, 0, 0, 1],  # the first episode was truncated
    }
    assert batch["obs"].dtype == torch.uint8


def test_windows_never_cross_the_newest_record():
    buffer = filled(World([20] * 3).steps, capacity=11)
    seen = {tuple(window) for window in served(buffer, 500)}
    # The newest 11 of 63 records show 30 to 40; the record before 30 is lost.
    assert seen == {tuple(range(start, start + 4)) for start in range(31, 38)}


def test_windows_of_all_environments_are_sampled_uniformly():
    buffer = filled(together(World([8]), World([4, 4])), num_envs=2)
    assert buffer.counts == [9, 10]
    assert buffer.num_windows == 6 + 7
    served(buffer, 4)  # the new windows
    starts = [window[0] for window in served(buffer, 13_000)]
    # The first shows 0 to 8, the second 0 to 4 and 10 to 14.
    counts = [starts.count(first) for first in (0, 4, 5, 10, 11)]
    assert counts == pytest.approx([2000, 2000, 1000, 1000, 1000], rel=0.12)


def test_new_windows_are_served_once_and_first():
    buffer = filled(together(World([20]), World([20])), num_envs=2)
    assert served(buffer, 3) == [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7]]
    assert served(buffer, 3) == [[4, 5, 6, 7], [8, 9, 10, 11], [8, 9, 10, 11]]
    rest = served(buffer, 60)
    assert rest[:4] == [[12, 13, 14, 15]] * 2 + [[16, 17, 18, 19]] * 2
    assert len({window[0] for window in rest[4:]}) > 12  # of 18


def test_a_new_window_that_was_overwritten_is_skipped():
    buffer = filled(World([40]).steps, capacity=12)
    windows = served(buffer, 10)  # of those that waited, the last four begin with 24, 28, 32 and 36
    assert windows[2:4] == [[32, 33, 34, 35], [36, 37, 38, 39]]
    assert min(window[0] for window in windows) >= 30  # the newest 12 of 41 records begin with 29


def latent_steps(steps: Sequence[Batch]) -> list[Batch]:
    """Steps whose latents hold the observed number twice."""
    return [{**step, "deter": step["obs"].float().expand(-1, 2)} for step in steps]


def with_latents(steps: Sequence[Batch], **options: Any) -> RecurrentReplayBuffer:
    return filled(latent_steps(steps), latents={"deter": ((2,), torch.float16)}, **options)


def test_a_window_starts_from_the_latents_of_the_record_before_it():
    batch = with_latents(World([20]).steps).sample(50)
    first = batch["obs"][:, 0, 0]
    before = torch.where(first > 0, first.float() - 1, 0.0)
    assert batch["start_deter"].dtype == torch.float16
    assert batch["start_deter"].tolist() == [[number, number] for number in before.tolist()]
    assert batch["is_first"][:, 0].tolist() == (first == 0).float().tolist()
    assert batch["previous_actions"][:, 0].tolist() == first.tolist()  # step n has action n + 1


def test_without_latents_a_window_starts_a_new_episode():
    batch = filled(World([20]).steps).sample(50)
    assert batch["is_first"].tolist() == [[1, 0, 0, 0]] * 50
    assert batch["previous_actions"][:, 0].tolist() == [0] * 50


def test_latents_are_written_back_to_their_records():
    buffer = with_latents(together(World([20]), World([20])), num_envs=2)
    batch = buffer.sample(200)
    buffer.write_back(batch["rows"], {"deter": batch["obs"].float().expand(-1, -1, 2) + 100})
    again = buffer.sample(200)
    first = again["obs"][:, 0, 0]
    assert again["start_deter"][first > 0, 0].tolist() == (first[first > 0].float() + 99).tolist()
    with pytest.raises(ValueError, match=r"latents must be \['deter'\], got \['stoch'\]"):
        buffer.write_back(batch["rows"], {"stoch": torch.zeros(200, 4, 2)})


def test_short_episodes_are_sampled():
    seen = {tuple(window) for window in served(filled(World([1] * 5).steps), 100)}
    assert (0, 1, 10, 11) in seen
    assert (1, 10, 11, 20) in seen


def test_a_marked_boundary_ends_the_episode():
    buffer = filled(World([20]).steps[:3])
    buffer.mark_boundary()
    for step in World([20]).steps[:3]:
        buffer.add(step)
    batch = buffer.sample(1)  # the new window
    assert batch["obs"].flatten().tolist() == [0, 1, 2, 0]
    assert batch["is_last"].flatten().tolist() == [0, 0, 1, 0]
    assert batch["is_first"].flatten().tolist() == [1, 0, 0, 1]
    assert batch["rewards"].flatten().tolist() == [0, 1, 2, 0]
    assert batch["dones"].sum() == 0


def test_a_restored_buffer_continues_identically(tmp_path):
    steps = latent_steps(together(World([9] * 5), World([5] * 9)))
    buffer = filled(steps[:30], capacity=40, num_envs=2, latents={"deter": ((2,), torch.float16)})
    buffer.sample(3)
    path = save_checkpoint(tmp_path, 1, {"lane": buffer.state_dict()}, info={}, replay=ReplaySegments(buffer.parts()))
    other = filled([], capacity=40, num_envs=2, latents={"deter": ((2,), torch.float16)})
    saved = read_checkpoint(path)
    ReplaySegments(other.parts()).restore(saved)
    other.load_state_dict(saved.state["lane"])
    for step in steps[30:]:
        mine, theirs = buffer.sample(5), other.sample(5)
        assert all(column.equal(theirs[name]) for name, column in mine.items())
        latents = {"deter": torch.rand(5, 4, 2)}
        for each in (buffer, other):
            each.write_back(mine["rows"], latents)
            each.add(step)


@pytest.mark.parametrize(("saved", "kept"), [("deter", "none"), ("none", "deter")])
def test_a_state_with_other_latents_is_rejected(saved, kept):
    layouts: dict[str, Any] = {"deter": {"deter": ((2,), torch.float16)}, "none": None}
    state = filled([], capacity=40, num_envs=2, latents=layouts[saved]).state_dict()
    with pytest.raises(ValueError, match=f"saved with latents {saved}, this one has {kept}; set stored_latents"):
        filled([], capacity=40, num_envs=2, latents=layouts[kept]).load_state_dict(state)


def test_observations_can_be_stored_as_bytes():
    spec = EnvSpec((1,), "discrete", 5)
    kept = {}
    for dtype in (None, torch.uint8):
        buffer = RecurrentReplayBuffer(100, spec, window=4, obs_dtype=dtype)
        for step in World([9]).steps:
            buffer.add({**step, "obs": step["obs"].float(), "next_obs": step["next_obs"].float()})
        kept[dtype] = buffer.sample(2)["obs"]
    assert (kept[None].dtype, kept[torch.uint8].dtype) == (torch.float32, torch.uint8)
    assert kept[torch.uint8][0, :, 0].tolist() == kept[None][0, :, 0].tolist() == [0, 1, 2, 3]


def test_box_actions_keep_their_width():
    spec = EnvSpec((3,), "box", 2, action_shape=(2,), action_low=(-1.0,) * 2, action_high=(1.0,) * 2)
    buffer = RecurrentReplayBuffer(20, spec, window=3)
    zero = torch.zeros(1)
    for step in range(4):
        seen = torch.full((1, 3), float(step))
        buffer.add({"obs": seen, "actions": seen[:, :2] / 10, "rewards": zero, "next_obs": seen + 1, "dones": zero,
                    "truncated": zero})  # fmt: skip
    batch = buffer.sample(1)
    torch.testing.assert_close(batch["previous_actions"], torch.tensor([[[0, 0], [0, 0], [0.1, 0.1]]]))


def test_invalid_capacities_and_shapes_are_rejected():
    with pytest.raises(ValueError, match="capacity must be at least 12 for windows of 4 in 2 environments, got 11"):
        RecurrentReplayBuffer(11, PIXEL, window=4, num_envs=2)
    with pytest.raises(ValueError, match="no environment has 4 records yet"):
        filled(World([20]).steps[:3]).sample(1)
    with pytest.raises(ValueError, match="transitions must have the columns and shapes"):
        filled(World([20]).steps[:1], num_envs=2, capacity=20)
