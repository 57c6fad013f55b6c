"""Copies of a command's folder: complete checkpoints, no path outside the folder, and no file sent twice."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from rl_training.experiment.executors.ray.copying import outbox as outbox_module
from rl_training.experiment.executors.ray.copying import snapshots
from rl_training.experiment.executors.ray.copying.inbox import Inbox
from rl_training.experiment.executors.ray.copying.outbox import Outbox
from rl_training.experiment.executors.ray.copying.snapshots import (
    PIECE,
    CopiedFile,
    CopyError,
    Group,
    Snapshot,
    copy_groups,
)

CHECKPOINTS = "cell/seed_0/checkpoints"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A bench with the plan, one cell with a checkpoint, and another cell."""
    root = tmp_path / "source"
    write(root / "bench.yaml", "algos: [dqn]")
    write(root / "other" / "result.json", "{}")
    write(root / "cell" / "seed_0" / "metrics.jsonl", "1\n")
    write(root / "cell" / "seed_0" / "run.json", "{}")
    checkpoint(root, 1, "weights")
    return root


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def checkpoint(root: Path, step: int, weights: str) -> Path:
    directory = root / CHECKPOINTS / f"step_{step:09d}"
    write(directory / "learner.safetensors", weights)
    write(directory / "manifest.json", f"{step}")
    return directory


def copy(outbox: Outbox, inbox: Inbox, *, checkpoints: bool = True) -> list[str]:
    """Copies a snapshot and returns the paths that were sent."""
    sent: list[str] = []

    def read(path: str, offset: int) -> bytes:
        sent.append(path)
        return outbox.read(path, offset)

    snapshot = Snapshot.from_json(outbox.snapshot(checkpoints=checkpoints).to_json())
    copy_groups(snapshot, read, inbox.wanted, inbox.write, inbox.publish)
    if checkpoints:
        inbox.keep_only(snapshot.checkpoints)
    outbox.done()
    return sent


def files(root: Path) -> dict[str, str]:
    return {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*") if path.is_file()}


def test_a_cell_goes_there_with_its_plan_and_comes_back_with_what_changed(source, tmp_path):
    there, back = tmp_path / "there", tmp_path / "back"
    copy(Outbox(source, "cell", top_level=True), Inbox(there, "cell", top_level=True))
    assert files(there) == {path: text for path, text in files(source).items() if not path.startswith("other")}
    outbox, inbox = Outbox(there, "cell"), Inbox(back, "cell")
    copy(outbox, inbox)
    inbox.close()
    assert files(back) == {path: text for path, text in files(there).items() if path.startswith("cell")}
    write(there / "cell/seed_0/metrics.jsonl", "1\n2\n")
    assert copy(outbox, inbox) == ["cell/seed_0/metrics.jsonl"]
    assert copy(outbox, inbox) == []


def test_checkpoints_come_before_the_files_that_claim_them_and_after_the_log(source):
    paths = [group.files[-1].path for group in Outbox(source, "cell").snapshot().groups]
    expected = ["cell/seed_0/metrics.jsonl", f"{CHECKPOINTS}/step_000000001/manifest.json", "cell/seed_0/run.json"]
    assert paths == expected


def test_a_removed_checkpoint_is_removed_from_the_copy_too_but_never_the_last(source, tmp_path):
    outbox, inbox = Outbox(source, "cell"), Inbox(tmp_path / "back", "cell")
    copy(outbox, inbox)
    first = checkpoint(source, 2, "later").with_name("step_000000001")
    os.rename(first, first.with_name(".tmp-1"))
    copy(outbox, inbox)
    found = tmp_path / "back" / CHECKPOINTS
    assert sorted(os.listdir(found)) == ["step_000000002"]
    os.rename(first.with_name("step_000000002"), first.with_name(".tmp-2"))
    copy(outbox, inbox)
    assert sorted(os.listdir(found)) == ["step_000000002"]


def test_a_checkpoint_that_is_removed_meanwhile_is_left_out_as_a_whole(source, monkeypatch):
    directory = source / CHECKPOINTS / "step_000000001"
    link = snapshots.link_or_copy

    def link_and_remove(path: Path, target: Path) -> None:
        link(path, target)
        if path.name == "learner.safetensors":
            os.rename(directory, directory.with_name(".tmp-removed"))

    monkeypatch.setattr(outbox_module, "link_or_copy", link_and_remove)
    assert [group for group in Outbox(source, "cell").snapshot().groups if group.checkpoint] == []


def test_a_checkpoint_that_is_replaced_meanwhile_is_left_out_as_a_whole(source, monkeypatch):
    directory = source / CHECKPOINTS / "step_000000001"
    link = snapshots.link_or_copy

    def link_and_replace(path: Path, target: Path) -> None:
        link(path, target)
        if path.name == "learner.safetensors":
            os.rename(directory, directory.with_name(".tmp-replaced"))
            write(directory / "manifest.json", "1, again")

    monkeypatch.setattr(outbox_module, "link_or_copy", link_and_replace)
    outbox = Outbox(source, "cell")
    assert [group for group in outbox.snapshot().groups if group.checkpoint] == []
    outbox.done()
    monkeypatch.undo()
    assert [group.checkpoint for group in outbox.snapshot().groups] == [f"{CHECKPOINTS}/step_000000001"]


def test_a_file_that_grows_is_copied_as_it_was_at_the_snapshot(source, tmp_path):
    outbox, inbox = Outbox(source, "cell"), Inbox(tmp_path / "back", "cell")
    snapshot = outbox.snapshot()
    with (source / "cell/seed_0/metrics.jsonl").open("a") as log:
        log.write("2\n")
    copy_groups(snapshot, outbox.read, inbox.wanted, inbox.write, inbox.publish)
    outbox.done()
    assert (tmp_path / "back/cell/seed_0/metrics.jsonl").read_text() == "1\n"
    assert copy(outbox, inbox) == ["cell/seed_0/metrics.jsonl"]


def test_hard_links_to_files_that_were_copied_are_not_sent_again(source, tmp_path):
    outbox, inbox = Outbox(source, "cell"), Inbox(tmp_path / "back", "cell")
    copy(outbox, inbox)
    first, second = (f"{CHECKPOINTS}/step_00000000{step}" for step in (1, 2))
    (source / second).mkdir()
    os.link(source / first / "learner.safetensors", source / second / "learner.safetensors")
    write(source / second / "manifest.json", "2")
    assert copy(outbox, inbox) == [f"{second}/manifest.json"]
    assert (tmp_path / "back" / second / "learner.safetensors").samefile(
        tmp_path / "back" / first / "learner.safetensors"
    )


def test_large_files_come_in_pieces_and_only_with_checkpoints(source, tmp_path):
    large = b"0123456789abcdef" * (PIECE // 16) + b"end"
    (source / "cell/seed_0/large.bin").write_bytes(large)
    outbox, inbox = Outbox(source, "cell"), Inbox(tmp_path / "back", "cell")
    assert copy(outbox, inbox, checkpoints=False) == ["cell/seed_0/metrics.jsonl"]
    assert copy(outbox, inbox).count("cell/seed_0/large.bin") == 2
    assert (tmp_path / "back/cell/seed_0/large.bin").read_bytes() == large


def test_links_and_hidden_files_are_not_copied(source, tmp_path):
    (source / "cell" / "link").symlink_to("/etc/hostname")
    (source / "cell" / ".lock").touch()
    sent = copy(Outbox(source, "cell"), Inbox(tmp_path / "back", "cell"))
    assert [path for path in sent if "link" in path or "lock" in path] == []


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../outside", "cell/../other/file", "other/result.json", "bench.yaml", "cell", "", "cell/.lock",
     "cell/a\\b", "cell/a\0b", "cell/out/file"],
)  # fmt: skip
def test_nothing_is_written_outside_the_folder_of_the_work(tmp_path, path):
    (tmp_path / "cell").mkdir()
    (tmp_path / "cell" / "out").symlink_to(tmp_path)
    inbox = Inbox(tmp_path, "cell")
    with pytest.raises(CopyError, match="a copy must not write"):
        inbox.write(path, 0, b"data")
    with pytest.raises(CopyError, match="a copy must not write"):
        inbox.publish(Group(None, [CopiedFile(path, 4, hashlib.sha256(b"data").hexdigest())]))


def test_a_damaged_copy_replaces_nothing(tmp_path):
    write(tmp_path / "cell" / "metrics.jsonl", "before")
    inbox = Inbox(tmp_path, "cell")
    inbox.write("cell/metrics.jsonl", 0, b"data")
    with pytest.raises(CopyError, match=r"the copy of cell/metrics\.jsonl does not match its checksum"):
        inbox.publish(Group(None, [CopiedFile("cell/metrics.jsonl", 4, hashlib.sha256(b"dat4").hexdigest())]))
    with pytest.raises(CopyError, match="came in the wrong order or size"):
        inbox.write("cell/metrics.jsonl", 7, b"data")
    assert (tmp_path / "cell" / "metrics.jsonl").read_text() == "before"


def test_a_checkpoint_takes_no_file_from_elsewhere(tmp_path):
    inbox = Inbox(tmp_path, "cell")
    group = Group("cell/checkpoints/step_1", [CopiedFile("cell/file", 4, hashlib.sha256(b"data").hexdigest())])
    inbox.write("cell/file", 0, b"data")
    with pytest.raises(CopyError, match="a file of the checkpoint cell/checkpoints/step_1 lies elsewhere"):
        inbox.publish(group)


def test_a_snapshot_is_plain_json(source):
    snapshot = Outbox(source, "cell").snapshot()
    assert Snapshot.from_json(snapshot.to_json()) == snapshot
    assert isinstance(json.loads(snapshot.to_json()), list)
