"""An interrupted save always leaves an intact checkpoint."""

from __future__ import annotations

import errno
import os
import resource
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_training.data.replay.replay_buffer import ReplayBuffer
from rl_training.runtime.checkpoints import replay_segments
from rl_training.runtime.checkpoints.format import CheckpointError
from rl_training.runtime.checkpoints.reading import newest_checkpoint
from rl_training.runtime.checkpoints.writing import save_checkpoint
from rl_training.types import EnvSpec


def save(directory: Path, step: int, value: float = 0.0, **options: Any) -> Path:
    return save_checkpoint(directory, step, {"learner": {"weight": torch.full((3,), value)}}, info={}, **options)


def replay_and_segments() -> tuple[ReplayBuffer, replay_segments.ReplaySegments]:
    replay = ReplayBuffer(15, EnvSpec((1,), "box", 1))
    return replay, replay_segments.ReplaySegments({"replay": replay})


def add_rows(replay: ReplayBuffer) -> None:
    replay.add({name: torch.zeros(12, *column.shape[1:]) for name, column in replay.columns.items()})


def save_replay(directory: Path, step: int, value: int, segments: replay_segments.ReplaySegments) -> None:
    save_checkpoint(directory, step, {"learner": torch.tensor(value)}, info={}, replay=segments, keep=1)


def die_at(moment: int) -> None:
    """Ends this process at a file operation, counted from now."""
    seen = -1

    def hook(event: str, arguments: Any) -> None:
        nonlocal seen
        seen += event == "open" or event.startswith(("os.", "shutil."))
        if seen == moment:
            os._exit(9)

    sys.addaudithook(hook)


def killed(directory: Path, second_step: int, moment: int) -> bool:
    """Saves two checkpoints in a forked process; returns whether it died before it was done."""
    child = os.fork()
    if not child:
        try:
            replay, segments = replay_and_segments()
            add_rows(replay)
            save_replay(directory, 1, 1, segments)
            add_rows(replay)
            die_at(moment)
            save_replay(directory, second_step, 2, segments)
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


def check(directory: Path) -> None:
    damage: list[str] = []
    checkpoint = newest_checkpoint(directory, damage.append)
    assert not damage
    assert checkpoint
    replay, segments = replay_and_segments()
    segments.restore(checkpoint)
    assert (int(checkpoint.group("learner")), replay.added) in [(1, 12), (2, 24)]
    save_replay(directory, 3, 3, segments)
    assert os.listdir(directory) == ["step_000000003"]


@pytest.mark.parametrize("second_step", [2, 1])  # the next checkpoint, and the same one again
def test_a_run_killed_at_any_file_operation_has_an_intact_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second_step: int
) -> None:
    monkeypatch.setattr(replay_segments, "SEGMENT_ROWS", 10)
    moment = 0
    while killed(tmp_path / str(moment), second_step, moment):
        check(tmp_path / str(moment))
        moment += 1
    check(tmp_path / str(moment))
    assert moment > 20


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the name of an open file")
def test_all_files_are_on_disk_before_the_checkpoint_is_renamed(
    tmp_path: Path, fsync: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    flush, replace = os.fsync, os.replace

    def record_fsync(descriptor: int) -> None:
        events.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        flush(descriptor)

    def record_replace(source: Path, target: Path) -> None:
        events.append(f"{source.name} -> {target.name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    save(tmp_path / "checkpoints", 1)
    temporary = events[3]
    assert events == [
        "learner.safetensors", "state.json", "manifest.json", temporary,
        f"{temporary} -> step_000000001", "checkpoints",
    ]  # fmt: skip


def test_a_file_over_the_size_limit_leaves_the_previous_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 1, value=1.0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(CheckpointError, match=r"could not write checkpoint .*step_000000002: File too large; free"):
            save_checkpoint(tmp_path, 2, {"learner": torch.zeros(100_000)}, info={})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == ["step_000000001"]
    save(tmp_path, 2)
    assert sorted(os.listdir(tmp_path)) == ["step_000000001", "step_000000002"]


@pytest.mark.parametrize("call", ["fsync", "replace", "mkdir"])
def test_a_full_disk_at_any_call_leaves_the_previous_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    save(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(CheckpointError, match="step_000000002: No space left on device; free disk space"):
            save(tmp_path, 2)
    assert os.listdir(tmp_path) == ["step_000000001"]
