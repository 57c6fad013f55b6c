"""Worker processes and runs in processes of their own can import `environments`, and none of them may be left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _environments_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(Path(__file__).resolve().parent)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", folder, prepend=":")


@pytest.fixture
def crashes(_environments_can_be_imported: None) -> Any:
    """Runs a function in a forked process that ends at its k-th file operation; see `crash_points.crashes`."""
    return import_module("crash_points").crashes


def processes_of_group(group: int) -> list[str]:
    found = subprocess.run(["ps", "-eo", "pgid=,stat=,pid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=2) for line in found.splitlines()]
    return [shown for pgid, state, shown in rows if int(pgid) == group and not state.startswith("Z")]


@contextmanager
def started_group(*command: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def started() -> Callable[..., AbstractContextManager[subprocess.Popen[str]]]:
    """Starts Python in a process group of its own, which is gone at the end."""
    return started_group


@pytest.fixture(scope="session")
def expect_group_ends() -> Callable[[int], None]:
    """Fails if a process of the group is left after five seconds."""

    def expect(group: int) -> None:
        deadline = time.monotonic() + 5
        while left := processes_of_group(group):
            assert time.monotonic() < deadline, f"processes outlive their parent: {left}"
            time.sleep(0.05)

    return expect
