"""Random streams: one per purpose, derived from the run's seed and the name of the purpose."""

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
    """Returns a 63-bit seed by hashing: equal on every platform and independent across seeds and purposes."""
    key = [index(seed), *(part if isinstance(part, str) else index(part) for part in purpose)]
    digest = hashlib.sha256(json.dumps(key).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def episode_seed(seed: int, env: int, episode: int) -> int:
    """Returns the seed for the reset of one episode; 31 bits, the limit of NumPy's legacy generator."""
    return derive(seed, "env", env, episode) & 0x7FFFFFFF


def generator(seed: int, *purpose: str | int, device: str | torch.device = "cpu") -> torch.Generator:
    import torch

    return torch.Generator(device).manual_seed(derive(seed, *purpose))


@contextmanager
def fork(seed: int, *purpose: str | int) -> Iterator[None]:
    """Seeds PyTorch's default generators inside the block and restores them afterwards."""
    import torch

    # Reading the CUDA state would initialise CUDA, which is slow and unnecessary on the CPU.
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices):
        torch.manual_seed(derive(seed, *purpose))
        yield
