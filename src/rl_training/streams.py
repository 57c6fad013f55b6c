"""Random numbers: a stream for every purpose, derived from the run's seed and the purpose's name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from operator import index
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def derive(seed: int, *purpose: str | int) -> int:
    """A seed of 63 bits: the same on every platform, and unrelated to that of any other seed or purpose."""
    key = [index(seed), *(part if isinstance(part, str) else index(part) for part in purpose)]
    digest = hashlib.sha256(json.dumps(key).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def episode_seed(seed: int, env: int, episode: int) -> int:
    """What `reset` of one episode is given: 31 bits, since environments that seed an older generator take no more."""
    return derive(seed, "env", env, episode) & 0x7FFFFFFF


def generator(seed: int, *purpose: str | int, device: str | torch.device = "cpu") -> torch.Generator:
    """A generator of its own for one purpose."""
    import torch

    return torch.Generator(device).manual_seed(derive(seed, *purpose))


@contextmanager
def fork(seed: int, *purpose: str | int) -> Iterator[None]:
    """Seed torch's default generators for the block, and put them back as they were after it."""
    import torch

    # Asking CUDA for its state would start it, which a run on the CPU must not pay for.
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices):
        torch.manual_seed(derive(seed, *purpose))
        yield
