"""What every source of batches shares: a generator of its own and one gather a column."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rl_training.types import Batch


class RandomRows:
    """Owns the generator that rows are drawn with, so that sampling disturbs no other randomness."""

    draws_on_device = True

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.generator = torch.Generator(device)

    def seed(self, seed: int) -> None:
        self.generator.manual_seed(seed)

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["generator"].cpu())


def gather(columns: Batch, rows: Tensor) -> Batch:
    """The given rows of every column; the batch takes the shape of `rows`."""
    if rows.ndim == 1:
        return {name: column.index_select(0, rows) for name, column in columns.items()}
    batch = gather(columns, rows.flatten())
    return {name: column.view(*rows.shape, *column.shape[1:]) for name, column in batch.items()}
