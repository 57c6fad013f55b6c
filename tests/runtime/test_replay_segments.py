"""Replay buffers are saved in segments, linked where unchanged, and restored."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from rl_training.data.replay.replay_buffer import ReplayBuffer
from rl_training.runtime.checkpoints.format import CheckpointError
from rl_training.runtime.checkpoints.reading import newest_checkpoint, read_checkpoint
from rl_training.runtime.checkpoints.replay_segments import ReplaySegments
from rl_training.runtime.checkpoints.writing import save_checkpoint
from rl_training.types import Batch, EnvSpec

SPEC = EnvSpec((2,), "discrete", 3, obs_dtype="uint8")


def transitions(start: int, count: int) -> Batch:
    """Transitions whose values encode their row number."""
    numbers = torch.arange(start, start + count)
    obs = torch.stack([numbers % 251, numbers % 241], 1).to(torch.uint8)
    flags = torch.zeros(count)
    return {"obs": obs, "actions": numbers % 3, "rewards": numbers.float(), "next_obs": obs, "dones": flags,
            "truncated": flags}  # fmt: skip


def replay_of(rows: int, capacity: int = 25_000) -> ReplayBuffer:
    replay = ReplayBuffer(capacity, SPEC)
    extend(replay, rows)
    return replay


def extend(replay: ReplayBuffer, rows: int) -> None:
    while rows:
        count = min(rows, replay.capacity)
        replay.add(transitions(replay.added, count))
        rows -= count


def save_replay(directory: Path, step: int, segments: ReplaySegments, **options: Any) -> Path:
    return save_checkpoint(directory, step, {}, info={}, replay=segments, **options)


def restored(path: Path, capacity: int = 25_000) -> ReplayBuffer:
    replay = ReplayBuffer(capacity, SPEC)
    ReplaySegments({"replay": replay}).restore(read_checkpoint(path))
    return replay


def stored_rows(replay: ReplayBuffer) -> Batch:
    return replay.rows(replay.added - len(replay), replay.added)


def same_rows(left: Batch, right: Batch) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def segment_files(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir() if "-" in file.name)


@pytest.mark.parametrize("rows", [0, 1, 9_999, 10_000, 10_001, 25_000, 38_000, 60_000])
def test_a_restored_replay_buffer_holds_the_stored_rows(tmp_path: Path, rows: int) -> None:
    replay = replay_of(rows)
    twin = restored(save_replay(tmp_path, 1, ReplaySegments({"replay": replay})))
    assert (twin.added, len(twin)) == (replay.added, len(replay))
    assert same_rows(stored_rows(twin), stored_rows(replay))


def test_segments_begin_at_multiples_of_ten_thousand_and_hold_the_stored_rows(tmp_path: Path) -> None:
    path = save_replay(tmp_path, 1, ReplaySegments({"replay": replay_of(38_000)}))  # stored: rows 13,000 to 37,999
    sizes = [len(safetensors.torch.load_file(path / file)["rewards"]) for file in segment_files(path)]
    assert segment_files(path) == [f"replay-00000{index}.safetensors" for index in (1, 2, 3)]
    assert sizes == [7_000, 10_000, 8_000]


def linked(path: Path, other: Path) -> list[str]:
    """The segments that two checkpoints share."""
    shared = set(segment_files(path)) & set(segment_files(other))
    return sorted(file for file in shared if (path / file).samefile(other / file))


def test_segments_are_linked_from_the_checkpoint_before_the_last(tmp_path: Path) -> None:
    replay = replay_of(24_000, capacity=40_000)
    segments = ReplaySegments({"replay": replay})
    saved = []
    for step in (1, 2, 3, 4):
        saved.append(save_replay(tmp_path, step, segments, keep=4))
        assert same_rows(stored_rows(restored(saved[-1], capacity=40_000)), stored_rows(replay))
        extend(replay, 8_000)
    first, second, third, fourth = saved  # the fourth has dropped the first 8,000 rows
    assert linked(first, third) == ["replay-000000.safetensors", "replay-000001.safetensors"]
    assert linked(second, fourth) == ["replay-000001.safetensors", "replay-000002.safetensors"]
    assert not any(linked(*pair) for pair in ((first, second), (second, third), (third, fourth)))


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_a_flipped_bit_in_one_segment_leaves_an_intact_checkpoint(tmp_path: Path, step: int) -> None:
    replay = replay_of(24_000)
    segments = ReplaySegments({"replay": replay})
    for number in range(1, step + 1):
        newest = save_replay(tmp_path, number, segments, keep=2)
        extend(replay, 2_000)
    file = newest / segment_files(newest)[1]
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    damage: list[str] = []
    intact = newest_checkpoint(tmp_path, damage.append)
    assert len(damage) == 1
    assert (None if intact is None else intact.step) == (step - 1 or None)


def test_a_checkpoint_saved_twice_is_linked_to_itself_and_not_to_the_one_before(tmp_path: Path) -> None:
    segments = ReplaySegments({"replay": replay_of(24_000)})
    for step in (1, 2, 3, 3):
        newest = save_replay(tmp_path, step, segments, keep=2)
    save_replay(tmp_path, 4, segments, keep=2)
    assert linked(newest, tmp_path / "step_000000004") == []
    segments = ReplaySegments({"replay": replay_of(24_000)})
    for step in (5, 6, 7, 7):
        newest = save_replay(tmp_path, step, segments, keep=3)
    assert linked(newest, tmp_path / "step_000000006") == []


def test_the_only_checkpoint_kept_is_linked(tmp_path: Path) -> None:
    replay = replay_of(24_000)
    segments = ReplaySegments({"replay": replay})
    for step in (1, 2):
        save_replay(tmp_path, step, segments, keep=1)
    before = (tmp_path / "step_000000002" / "replay-000000.safetensors").stat().st_ino
    assert (save_replay(tmp_path, 3, segments, keep=1) / "replay-000000.safetensors").stat().st_ino == before


def test_a_checkpoint_stays_readable_after_the_one_it_links_to_is_removed(tmp_path: Path) -> None:
    replay = replay_of(12_000)
    segments = ReplaySegments({"replay": replay})
    for step in (1, 2, 3):
        path = save_replay(tmp_path, step, segments, keep=1)
        extend(replay, 3_000)
    assert os.listdir(tmp_path) == [path.name]
    assert restored(path).added == 18_000


def test_a_resumed_run_saves_the_same_bytes_as_an_uninterrupted_one(tmp_path: Path) -> None:
    replay = replay_of(24_000)
    segments = ReplaySegments({"replay": replay})
    first = save_replay(tmp_path / "a", 1, segments)
    twin = ReplayBuffer(25_000, SPEC)
    resumed = ReplaySegments({"replay": twin})
    resumed.restore(read_checkpoint(first))
    for step in (2, 3, 4):
        for buffer in (replay, twin):
            extend(buffer, 6_000)
        other, path = save_replay(tmp_path / "b", step, resumed), save_replay(tmp_path / "a", step, segments)
        assert (path / "manifest.json").read_bytes() == (other / "manifest.json").read_bytes()


def test_rows_of_another_run_in_the_same_directory_are_never_linked(tmp_path: Path) -> None:
    save_replay(tmp_path, 1, ReplaySegments({"replay": replay_of(12_000)}))
    replay = ReplayBuffer(25_000, SPEC)
    replay.add(transitions(500, 12_000))  # different rows with the same numbers
    path = save_replay(tmp_path, 2, ReplaySegments({"replay": replay}))
    assert same_rows(stored_rows(restored(path)), stored_rows(replay))


def refuse_links(*_: Any) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


@pytest.mark.parametrize("failure", ["truncated", "removed", "links not supported"])
def test_a_segment_that_cannot_be_linked_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    replay = replay_of(12_000)
    segments = ReplaySegments({"replay": replay})
    first = save_replay(tmp_path, 1, segments)
    save_replay(tmp_path, 2, segments)
    if failure == "truncated":
        os.truncate(first / "replay-000000.safetensors", 10)
    elif failure == "removed":
        (first / "replay-000000.safetensors").unlink()
    else:
        monkeypatch.setattr(os, "link", refuse_links)
    assert same_rows(stored_rows(restored(save_replay(tmp_path, 3, segments))), stored_rows(replay))


def test_several_replay_buffers_are_saved_side_by_side(tmp_path: Path) -> None:
    path = save_replay(tmp_path, 1, ReplaySegments({"real": replay_of(11_000), "model": replay_of(500, capacity=300)}))
    assert segment_files(path) == ["model-000000.safetensors", "real-000000.safetensors", "real-000001.safetensors"]
    real, model = ReplayBuffer(25_000, SPEC), ReplayBuffer(300, SPEC)
    ReplaySegments({"real": real, "model": model}).restore(read_checkpoint(path))
    assert (len(real), len(model), model.added) == (11_000, 300, 500)


def test_a_replay_buffer_that_was_not_saved_cannot_be_restored(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has no rows of the replay buffer 'replay'"):
        restored(save_checkpoint(tmp_path, 1, {}, info={}))
    with pytest.raises(ValueError, match="the name of a replay buffer must consist of"):
        ReplaySegments({"../x": replay_of(0)})


def test_a_segment_whose_rows_do_not_match_the_manifest_is_refused(tmp_path: Path) -> None:
    path = save_replay(tmp_path, 1, ReplaySegments({"replay": replay_of(10)}))
    wrong = {"replay": {"replay-000000.safetensors": (0, 9)}}
    forged = read_checkpoint(path).manifest.model_copy(update={"replay": wrong})
    (path / "manifest.json").write_bytes(forged.to_bytes())
    with pytest.raises(CheckpointError, match=r"replay-000000\.safetensors does not hold the rows 0 to 9"):
        restored(path)
