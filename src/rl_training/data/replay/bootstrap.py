"""Batches for an ensemble: every member learns from a bootstrap of its own, and some rows are held out from all."""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.data.datasets.transition_dataset import TransitionDataset
from rl_training.data.replay.replay_buffer import ReplayBuffer
from rl_training.data.sampling import gather
from rl_training.types import Batch


class BootstrapSampler:
    """Passes over the rows of a dataset or ring, [members, batch_size] at a time.

    `split` draws what each member learns from, with replacement; `shuffle` begins a pass in a new order. The orders
    have room for as many rows as there can be, and stay where they are, so that captured updates may read them.
    """

    samples_on_device = True

    def __init__(self, source: TransitionDataset | ReplayBuffer, members: int, generator: torch.Generator) -> None:
        self.source, self.generator = source, generator
        capacity = source.capacity if isinstance(source, ReplayBuffer) else len(source)
        self._orders = torch.empty(members, capacity, dtype=torch.int64, device=generator.device)
        self._count = torch.ones((), dtype=torch.int64, device=generator.device)
        self._place = torch.zeros((), dtype=torch.int64, device=generator.device)
        self.count = 0  # rows in a pass

    def split(self, held_out: int) -> tuple[Tensor, Tensor]:
        """The numbers of the rows to learn from and of those that are held out."""
        device = self.generator.device
        rows = torch.randperm(len(self.source), generator=self.generator, device=device)
        held, rest = rows[:held_out], rows[held_out:]
        shape = (len(self._orders), len(rest))
        self.orders = rest[torch.randint(len(rest), shape, generator=self.generator, device=device)]
        return rest, held

    @property
    def orders(self) -> Tensor:
        """Row numbers of a pass, [members, count]."""
        return self._orders[:, : self.count]

    @orders.setter
    def orders(self, orders: Tensor) -> None:
        self.count = orders.shape[1]
        self._count.fill_(self.count)
        self.orders.copy_(orders)

    def shuffle(self) -> None:
        """One new order for all: what a member has drawn is independent of the others' draws already."""
        order = torch.randperm(self.count, generator=self.generator, device=self.generator.device)
        self.orders = self.orders[:, order]
        self._place.zero_()

    def sample(self, batch_size: int, members: tuple[int, ...] = ()) -> Batch:
        """The next rows of the pass; the last batch is filled up with the first ones."""
        places = (self._place + torch.arange(batch_size, device=self._place.device)) % self._count
        self._place.add_(batch_size)
        return gather(self.source.columns, self._orders.index_select(1, places))

    def rows(self, numbers: Tensor) -> Batch:
        return gather(self.source.columns, numbers)
