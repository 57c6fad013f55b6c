"""Shared by all batch sources: a private random generator, and packed columns that gather rows in few reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from itertools import accumulate
from typing import Any, TypeAlias

import torch
from torch import Tensor

from rl_training.types import Batch

Layout: TypeAlias = "tuple[tuple[int, ...], torch.dtype]"  # shape and dtype of one row


def row_bytes(layout: Mapping[str, Layout]) -> int:
    return sum(math.prod(shape) * dtype.itemsize for shape, dtype in layout.values())


class DeviceSampling:
    """Sampling that a CUDA graph can capture; see `rl_training.types.Source`."""

    samples_on_device = True
    position = 0

    def skip(self, batches: int, batch_size: int) -> None:
        """Advances the position as `batches` calls of `sample` do."""


class SeededSampler(DeviceSampling):
    """Owns the generator that rows are sampled with, so that other random streams do not change."""

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.generator = torch.Generator(device)

    def seed(self, seed: int) -> None:
        self.generator.manual_seed(seed)

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["generator"].cpu())


class PackedColumns(dict[str, Tensor]):
    """Columns whose float32 members are slices of one matrix [*lead, width], so that one read fetches a row."""

    def __init__(
        self, lead: tuple[int, ...], layout: Mapping[str, Layout], device: torch.device | str, *, pinned: bool = False
    ) -> None:
        packed = {name: shape for name, (shape, dtype) in layout.items() if dtype == torch.float32}
        # Not initialised: the operating system then allocates memory only for rows that are written.
        empty = partial(torch.empty, device=device, pin_memory=pinned)
        self.matrix = empty(*lead, sum(map(math.prod, packed.values())))
        self.shapes, self.places = packed, _places(packed)
        views = self._views(self.matrix)
        self._arrays: dict[str, Any] = {}
        super().__init__(
            (name, views[name] if name in views else empty(*lead, *shape, dtype=dtype))
            for name, (shape, dtype) in layout.items()
        )

    @classmethod
    def of(cls, columns: Batch, device: torch.device | str) -> PackedColumns:
        layout = {name: (tuple(column.shape[1:]), column.dtype) for name, column in columns.items()}
        packed = cls((len(next(iter(columns.values()))),), layout, device)
        for name, column in columns.items():
            packed[name].copy_(column)
        return packed

    def rows(self, rows: Tensor) -> Batch:
        matrix = self.matrix.view(-1, self.matrix.shape[-1])
        gathered = matrix[rows] if matrix.is_cuda else matrix.index_select(0, rows)  # the faster kernel of each
        return self._views(gathered) | {
            name: column.view(-1, *column.shape[self.matrix.dim() - 1 :]).index_select(0, rows)
            for name, column in self.items()
            if name not in self.shapes
        }

    @property
    def arrays(self) -> dict[str, Any]:
        """The columns as NumPy arrays of the same memory, for writes of a few rows; on the CPU only."""
        if not self._arrays:
            self._arrays = {name: column.numpy() for name, column in self.items()}
        return self._arrays

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_arrays": {}}  # those of a copy share its own memory

    @property
    def stored(self) -> Batch:
        """The matrix under the name "", and the columns beside it."""
        return {"": self.matrix, **{name: column for name, column in self.items() if name not in self.shapes}}

    def packed(self, batch: Batch) -> Batch:
        """A batch [*lead, ...] in the form of `stored`, so that one write stores all float32 columns."""
        lead = self.matrix.dim() - 1
        parts = [
            batch[name].flatten(lead) if shape else batch[name].unsqueeze(-1) for name, shape in self.shapes.items()
        ]
        return {"": torch.cat(parts, -1), **{name: batch[name] for name in self if name not in self.shapes}}

    def put(self, rows: Tensor, batch: Batch) -> None:
        """Writes a batch to rows of the flattened leading axes."""
        lead, packed = self.matrix.dim() - 1, self.packed(batch)
        for name, column in self.stored.items():
            column.view(-1, *column.shape[lead:]).index_copy_(0, rows, packed[name].flatten(0, lead - 1).to(column))

    def _views(self, matrix: Tensor) -> Batch:
        views = {name: matrix[place] for name, place in self.places.items()}
        return views | {name: views[name].unflatten(-1, shape) for name, shape in self.shapes.items() if len(shape) > 1}


def _places(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Index of each column in a matrix [..., width] that holds them side by side."""
    ends = list(accumulate(map(math.prod, shapes.values())))
    starts = (0, *ends)
    return {
        name: (..., slice(start, end) if shape else start)
        for (name, shape), start, end in zip(shapes.items(), starts, ends, strict=False)
    }


def gather(columns: Batch, rows: Tensor) -> Batch:
    """Gathers rows of every column; row numbers index the flattened leading axes, and batches have `rows`' shape."""
    flat = rows.flatten()
    if isinstance(columns, PackedColumns):
        batch = columns.rows(flat)
    else:
        batch = {name: column.index_select(0, flat) for name, column in columns.items()}
    return batch if rows.ndim == 1 else {name: each.unflatten(0, rows.shape) for name, each in batch.items()}
