"""A file that cannot be written to its end leaves nothing behind, and an older file stays as it was."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_training.data import TransitionDataset, load_transition_dataset, save_transition_dataset
from rl_training.files import complete_file, write_atomically

LIMIT = 20_000  # bytes


@pytest.fixture
def limited() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def dataset_of(rows: int) -> TransitionDataset:
    walk = torch.randn(rows + 1, 3)
    values = {"obs": walk[:-1], "next_obs": walk[1:], "actions": torch.rand(rows, 1), "rewards": torch.rand(rows)}
    return TransitionDataset.from_dict({**values, "dones": torch.arange(rows) == rows - 1})


@pytest.mark.parametrize("name", ["data.npz", "data.parquet"])
def test_a_dataset_is_written_whole_or_not_at_all(tmp_path, limited, name):
    file = tmp_path / name
    for older in (False, True):
        if older:
            save_transition_dataset(dataset_of(10), file)
        with pytest.raises(OSError, match="File too large") as caught:
            save_transition_dataset(dataset_of(5_000), file)
        assert caught.value.filename == str(file)
        assert os.listdir(tmp_path) == ([name] if older else [])
    assert len(load_transition_dataset(file)) == 10


def test_a_minari_dataset_is_written_whole_or_not_at_all(tmp_path, limited):
    with pytest.raises(OSError, match="File too large") as caught:
        save_transition_dataset(dataset_of(5_000), tmp_path / "data-v0")
    assert caught.value.filename == str(tmp_path / "data-v0")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["data.npz", "data.parquet", "data-v0"])
def test_a_dataset_is_on_disk_before_it_gets_its_name(tmp_path, monkeypatch, name):
    events: list[Any] = []
    flush, replace = os.fsync, os.replace

    def record_fsync(file: int) -> None:
        events.append(os.fstat(file).st_ino)
        flush(file)

    def record_replace(source: Path, target: Path) -> None:
        events.append(target)
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    save_transition_dataset(dataset_of(10), tmp_path / name)
    paths = [*tmp_path.rglob("*")]
    assert paths
    assert all(path.stat().st_ino in events[: events.index(tmp_path / name)] for path in paths)
    assert events[-1] == tmp_path.stat().st_ino


def test_a_write_that_is_interrupted_leaves_no_temporary_file(tmp_path):
    def write_half() -> None:
        with complete_file(tmp_path / "data.npz") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["data.npz", "data.parquet"])
def test_two_writers_of_the_same_dataset_do_not_disturb_each_other(tmp_path, name):
    with complete_file(tmp_path / name) as file:
        file.write(b"first")
        save_transition_dataset(dataset_of(10), tmp_path / name)
        assert len(load_transition_dataset(tmp_path / name)) == 10
    assert (tmp_path / name).read_bytes() == b"first"  # the last one to finish
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("name", ["data.npz", "data.parquet"])
def test_an_error_names_the_file_that_was_asked_for(tmp_path, name):
    (tmp_path / name).mkdir()
    for file in (tmp_path / "missing" / name, tmp_path / name):
        with pytest.raises(OSError, match="directory") as caught:
            save_transition_dataset(dataset_of(10), file)
        assert (caught.value.filename, caught.value.filename2) == (str(file), None)


def test_a_link_to_a_dataset_stays_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "data.npz").symlink_to(tmp_path / "disk" / "data.npz")
    save_transition_dataset(dataset_of(10), tmp_path / "data.npz")
    assert (tmp_path / "data.npz").is_symlink()
    assert len(load_transition_dataset(tmp_path / "disk" / "data.npz")) == 10


def test_a_page_that_does_not_fit_leaves_no_temporary_file(tmp_path, limited):
    write_atomically(tmp_path / "page.html", "old")
    with pytest.raises(OSError, match="File too large"):
        write_atomically(tmp_path / "page.html", "x" * 2 * LIMIT)
    assert os.listdir(tmp_path) == ["page.html"]
    assert (tmp_path / "page.html").read_text() == "old"
