"""Mixing of datasets, uniformly over rows or with a weight per dataset."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from rl_training.data.datasets.actions import Bounds, logged_in_spec_units, with_action_range
from rl_training.data.datasets.tensors import to_array, with_marked_ends
from rl_training.data.datasets.trajectories import copy_origin, renumbered
from rl_training.data.datasets.transition_dataset import TransitionDataset
from rl_training.data.readers.joining import order_of, require_same_order, require_same_spaces
from rl_training.types import Array, Batch, EnvSpec


class Mixture(TransitionDataset):
    """Concatenated parts; sampling picks a part by its weight, then one of its rows uniformly."""

    def __init__(self, columns: Batch, *, spec: EnvSpec, sizes: Sequence[int], weights: Sequence[float]) -> None:
        if len(weights) != len(sizes):
            raise ValueError(f"weights must have one entry per dataset: {len(sizes)} datasets, {len(weights)} weights")
        if not all(0 < weight < math.inf for weight in weights):
            raise ValueError(f"weights must be positive numbers, got {list(weights)}")
        super().__init__(columns, spec=spec)
        self.sizes, self.weights = tuple(sizes), tuple(weights)
        total = math.fsum(weights)
        before = [0.0, *accumulate(weight / total for weight in weights[:-1])]  # cumulative weight before a part
        self._parts = torch.tensor([before, [0, *accumulate(sizes[:-1])], sizes], dtype=torch.float64)

    def to(self, device: torch.device | str) -> TransitionDataset:
        moved = super().to(device)
        if isinstance(moved, Mixture):
            moved._parts = self._parts.to(device)
        return moved

    def _rows_of_whole_episodes(self, chosen: Tensor) -> TransitionDataset:
        """The weights stay those of the parts; a part without a chosen row is left out."""
        rows = super()._rows_of_whole_episodes(chosen)
        counts = [int(part.sum()) for part in chosen.split(self.sizes)]
        kept = [(count, weight) for count, weight in zip(counts, self.weights, strict=True) if count]
        sizes, weights = zip(*kept, strict=True)
        mixture = Mixture(rows.columns, spec=rows.spec, sizes=sizes, weights=weights)
        mixture.gamma = rows.gamma
        copy_origin(mixture, rows, np.arange(len(rows)))
        return mixture

    def sample_rows(self, shape: tuple[int, ...]) -> Tensor:
        device = self.generator.device
        part, position = torch.rand(2, *shape, generator=self.generator, device=device, dtype=torch.float64)
        edges, starts, sizes = self._parts
        parts = torch.searchsorted(edges[1:].contiguous(), part, right=True)
        # In float64, size * position cannot round up to size.
        return (starts[parts] + (position * sizes[parts]).floor()).long()


def mix_transition_datasets(
    datasets: Sequence[TransitionDataset], weights: Sequence[float] | None = None
) -> TransitionDataset:
    """Concatenates datasets. Rows are sampled uniformly, or with `weights`, datasets in proportion to their weight."""
    _require_compatible(datasets)
    action_range = _common_range(datasets)
    # No episode continues into the next part.
    parts = [with_marked_ends(dataset.columns, dataset.episode_ends) for dataset in datasets]
    if action_range is None:
        pairs = zip(parts, datasets, strict=True)
        parts = [logged_in_spec_units(part, each.spec, each.action_range) for part, each in pairs]
    columns = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    if weights is None:
        mixed = TransitionDataset(columns, spec=datasets[0].spec)
    else:
        mixed = Mixture(columns, spec=datasets[0].spec, sizes=list(map(len, datasets)), weights=weights)
    mixed.action_range = action_range
    gammas = {dataset.gamma for dataset in datasets}
    mixed.gamma = gammas.pop() if len(gammas) == 1 else None
    mixed.file_episodes, mixed.trajectories = (_joined(datasets, name) for name in ("file_episodes", "trajectories"))
    return mixed


def _common_range(datasets: Sequence[TransitionDataset]) -> Bounds | None:
    """The range in which the actions of all datasets were recorded; None if they differ."""
    first = datasets[0]
    recorded = [with_action_range(each.spec, each.action_range) for each in datasets]
    return first.action_range if all(spec == recorded[0] for spec in recorded) else None


def _joined(datasets: Sequence[TransitionDataset], name: str) -> Array | None:
    """The episodes of the files or the trajectories of all datasets; None if no dataset has them."""
    numbers = [getattr(dataset, name) for dataset in datasets]
    if all(each is None for each in numbers):
        return None
    pairs = zip(datasets, numbers, strict=True)
    return renumbered([to_array(dataset.episode_numbers) if each is None else each for dataset, each in pairs])


def _require_compatible(datasets: Sequence[TransitionDataset]) -> None:
    if not datasets:
        raise ValueError("mix_transition_datasets needs at least one dataset, got none")
    first = datasets[0]
    sources = [f"dataset {number}" for number in range(1, len(datasets) + 1)]
    require_same_order([order_of(each.spec) for each in datasets], sources)
    remedy = "mixed datasets must have the same spaces: name their environment, or set --action-range"
    require_same_spaces([each.spec for each in datasets], sources, remedy)
    for number, dataset in enumerate(datasets, 1):
        if differing := sorted(dataset.columns.keys() ^ first.columns.keys()):
            raise ValueError(
                f"mixed datasets must have the same columns: the first and number {number} differ in {differing}"
            )
