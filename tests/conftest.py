"""What every test shares: one torch thread, repeatable examples, and the folder of real data where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder `shared/data` beside the repository; tests that want real data skip without it."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no folder shared/data beside the repository")
    return folder
