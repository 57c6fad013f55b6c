"""The error in the log of a command that failed, and what to do when memory or disk space ran out."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import pytest

from rl_training.experiment.executors.base import last_error


@pytest.mark.parametrize(
    ("log", "code", "message"),
    [
        ("a\nerror: no\n", 2, "no"),
        ("", 3, "ended with exit code 3"),
        ("warning\n", -9, "ended by SIGKILL; if memory ran out, run fewer jobs at a time: give --memory or --jobs"),
        ("error: OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", 1,
         "OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB; "
         "run fewer jobs at a time on a GPU: give --gpu-memory or --slots"),
    ],
)  # fmt: skip
def test_a_lack_of_memory_names_the_options(tmp_path, log, code, message):
    (tmp_path / "log.txt").write_text(log)
    assert last_error(tmp_path / "log.txt", code) == message


@pytest.mark.parametrize(
    ("log", "free", "message"),
    [
        ("", 0, "ended with exit code 1; no space is left in {}: free some, or give another --output"),
        ("", 1 << 30, "ended with exit code 1"),
        ("error: no\n", 0, "no"),
    ],
)
def test_an_empty_log_on_a_full_disk_is_explained(tmp_path, monkeypatch, log, free, message):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    (tmp_path / "log.txt").write_text(log)
    assert last_error(tmp_path / "log.txt", 1) == message.format(tmp_path)
