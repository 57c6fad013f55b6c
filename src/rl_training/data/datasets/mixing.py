"""Several datasets as one, drawn from row by row or each by its share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from rl_training.data.datasets.transition_dataset import TransitionDataset
from rl_training.types import Batch, EnvSpec


class Mixture(TransitionDataset):
    """Parts one after another; a draw picks a part by its weight, then a row of it, each as likely as any other."""

    def __init__(self, columns: Batch, *, spec: EnvSpec, sizes: Sequence[int], weights: Sequence[float]) -> None:
        super().__init__(columns, spec=spec)
        total = math.fsum(weights)
        self._parts = torch.tensor(
            [
                [0.0, *accumulate(weight / total for weight in weights[:-1])],  # where a part's share begins
                [0, *accumulate(sizes[:-1])],  # its first row
                sizes,
            ],
            dtype=torch.float64,
        )

    def to(self, device: torch.device | str) -> TransitionDataset:
        moved = super().to(device)
        if isinstance(moved, Mixture):
            moved._parts = self._parts.to(device)
        return moved

    def sample_rows(self, shape: tuple[int, ...]) -> Tensor:
        """On the device alone, so that a CUDA graph can hold the draw."""
        device = self.generator.device
        which, where = torch.rand(2, *shape, generator=self.generator, device=device, dtype=torch.float64)
        shares, starts, sizes = self._parts
        parts = torch.searchsorted(shares[1:].contiguous(), which, right=True)
        # 53 random bits: no size times a number below 1 rounds up to the size itself.
        return (starts[parts] + (where * sizes[parts]).floor()).long()


def mix_transition_datasets(
    datasets: Sequence[TransitionDataset], weights: Sequence[float] | None = None
) -> TransitionDataset:
    """The rows of all, each as likely as any other; with weights, each dataset is drawn from by its weight."""
    _require_alike(datasets)
    parts = [_closed(dataset) for dataset in datasets]
    columns = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    if weights is None:
        mixed = TransitionDataset(columns, spec=datasets[0].spec)
    else:
        _require_weights(weights, len(datasets))
        sizes = [len(dataset) for dataset in datasets]
        mixed = Mixture(columns, spec=datasets[0].spec, sizes=sizes, weights=weights)
    gammas = {dataset.gamma for dataset in datasets}
    mixed.gamma = gammas.pop() if len(gammas) == 1 else None
    return mixed


def _closed(dataset: TransitionDataset) -> Batch:
    """Its columns with every episode end in them, so that none runs on into the next part."""
    cut = dataset.episode_ends & (dataset.columns["dones"] == 0)
    return {**dataset.columns, "truncated": cut.to(dataset.columns["truncated"].dtype)}


def _require_alike(datasets: Sequence[TransitionDataset]) -> None:
    if not datasets:
        raise ValueError("there is no dataset to mix")
    first = datasets[0]
    for number, dataset in enumerate(datasets[1:], 1):
        if dataset.spec != first.spec:
            raise ValueError(
                f"datasets to mix must have the same spaces; the first has {first.spec}, number {number + 1} "
                f"{dataset.spec}: name their environment, or the range of their actions with --action-range"
            )
        if dataset.columns.keys() != first.columns.keys():
            differing = sorted(dataset.columns.keys() ^ first.columns.keys())
            raise ValueError(
                f"datasets to mix must have the same columns; the first and number {number + 1} differ in {differing}"
            )


def _require_weights(weights: Sequence[float], count: int) -> None:
    if len(weights) != count:
        raise ValueError(f"weights must be one a dataset: {count} datasets, {len(weights)} weights")
    if not all(0 < weight < math.inf for weight in weights):
        raise ValueError(f"weights must be positive numbers, got {list(weights)}")
