"""Worker processes and runs in processes of their own can import `environments`."""

from __future__ import annotations

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
