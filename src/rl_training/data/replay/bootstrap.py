"""Bootstrap batches for an ensemble: each member has its own resample, and some rows are held out from all."""

import torch
from torch import Tensor

from rl_training.data.datasets.transition_dataset import TransitionDataset
from rl_training.data.replay.replay_buffer import ReplayBuffer
from rl_training.data.sampling import DeviceSampling, gather
from rl_training.types import Batch


class BootstrapSampler(DeviceSampling):
    """Epochs over a dataset or replay buffer, in batches [members, batch_size]."""

    def __init__(self, source: TransitionDataset | ReplayBuffer, members: int, generator: torch.Generator) -> None:
        self.source, self.generator = source, generator
        capacity = source.capacity if isinstance(source, ReplayBuffer) else len(source)
        # Allocated once for the full capacity, because captured CUDA graphs read it at a fixed address.
        self._orders = torch.empty(members, capacity, dtype=torch.int64, device=generator.device)
        self._count, self._position = self._orders.new_ones(()), self._orders.new_zeros(())
        self.count = 0  # rows of an epoch

    def split(self, held_out: int) -> tuple[Tensor, Tensor]:
        """Returns row numbers of the training and holdout sets; samples each member's rows with replacement."""
        device = self.generator.device
        rows = torch.randperm(len(self.source), generator=self.generator, device=device)
        held, rest = rows[:held_out], rows[held_out:]
        shape = (len(self._orders), len(rest))
        self.orders = rest[torch.randint(len(rest), shape, generator=self.generator, device=device)]
        return rest, held

    @property
    def orders(self) -> Tensor:
        """Row numbers of an epoch, [members, count]."""
        return self._orders[:, : self.count]

    @orders.setter
    def orders(self, orders: Tensor) -> None:
        self.count = orders.shape[1]
        self._count.fill_(self.count)
        self.orders.copy_(orders)

    def shuffle(self) -> None:
        """Starts an epoch. All members share one permutation: their resamples are independent already."""
        order = torch.randperm(self.count, generator=self.generator, device=self.generator.device)
        self.orders = self.orders[:, order]
        self._position.zero_()

    def sample(self, batch_size: int, members: tuple[int, ...] = ()) -> Batch:
        """Returns the next rows of the epoch; the last batch is filled up from its beginning."""
        positions = (self._position + torch.arange(batch_size, device=self._position.device)) % self._count
        self._position.add_(batch_size)
        return gather(self.source.columns, self._orders.index_select(1, positions))

    def rows(self, numbers: Tensor) -> Batch:
        return gather(self.source.columns, numbers)
