"""Conversion of columns between NumPy and PyTorch, and the transform of rewards."""

import numpy as np
import torch
from torch import Tensor

from rl_training.types import Array, Batch


def to_array(column: Tensor) -> Array:
    """Shares memory with a CPU tensor."""
    return (column.float() if column.dtype == torch.bfloat16 else column).detach().cpu().numpy()


def to_tensor(column: Array) -> Tensor:
    return torch.from_numpy(np.require(column, requirements=["C", "W"]))


def transform_rewards(rewards: Tensor, scale: float, shift: float, clip: tuple[float, float] | None) -> Tensor:
    changed = rewards * scale + shift
    return changed if clip is None else changed.clamp(*clip)


def with_marked_ends(columns: Batch, ends: Tensor) -> Batch:
    """Marks every end of an episode that is not terminal in the column truncated."""
    truncated = ends & (columns["dones"] == 0)
    return {**columns, "truncated": truncated.to(columns["truncated"].dtype)}
