"""What every test shares: one torch thread, repeatable examples, and the folder of real data where there is one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from rl_training.algorithms import Learner, Updater
from rl_training.types import Batch

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


@pytest.fixture
def goes_on_alike() -> Callable[[Learner, Learner, Batch], None]:
    """Asserts that a learner which is given the state of another, an update on, takes the same next one."""

    def check(learner: Learner, other: Learner, batch: Batch) -> None:
        mine, theirs = Updater([learner]), Updater([other])
        mine.update(batch)
        theirs.load_state_dict(mine.state_dict())
        noise = torch.get_rng_state()
        mine.update(batch)
        torch.set_rng_state(noise)
        theirs.update(batch)
        assert all(value.equal(dict(other.named_parameters())[name]) for name, value in learner.named_parameters())

    return check
