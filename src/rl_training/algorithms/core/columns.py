"""Batch columns beyond those of every transition, declared by the learners that need them."""

from typing import NamedTuple

import torch

from rl_training.types import Batch


class Column(NamedTuple):
    """Name, shape and dtype of one row, and how online transitions get it.

    `like` names a transition column of the same shape and dtype. `online` is "episode end" for a column that a lane
    computes from the whole episode, or "" for one that only a dataset or the lane's own data can supply.
    """

    name: str
    shape: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32
    like: str = ""
    online: str = ""

    def layout(self, columns: Batch) -> tuple[tuple[int, ...], torch.dtype]:
        """Shape and dtype of one row beside these transition columns."""
        if not self.like:
            return self.shape, self.dtype
        return tuple(columns[self.like].shape[1:]), columns[self.like].dtype
