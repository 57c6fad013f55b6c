"""Bootstrap resamples of a dataset's episodes, for a population whose members each learn from their own."""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.data.datasets.transition_dataset import TransitionDataset
from rl_training.data.sampling import gather
from rl_training.types import Batch


class EpisodeBootstrap(TransitionDataset):
    """A dataset of which each of `members` sees as many episodes as there are, drawn once with replacement.

    Rows of one episode are not independent, so whole episodes are drawn, as another recording would have brought
    others. Resamples depend on the seed and the number of episodes alone: two policies can be compared on the same.
    """

    def __init__(self, dataset: TransitionDataset, members: int, *, seed: int = 0) -> None:
        super().__init__(dataset.columns, episode_ends=dataset.episode_ends, spec=dataset.spec)
        starts = dataset.episode_offsets
        lengths = torch.diff(starts, append=starts.new_tensor([len(dataset)]))
        drawn = torch.randint(len(starts), (members, len(starts)), generator=torch.Generator().manual_seed(seed))
        self.drawn = drawn.to(starts.device)  # [members, episodes], numbers of episodes
        self._ends = lengths[self.drawn].cumsum(1)  # of the drawn episodes, laid end to end
        self._to_row = starts[self.drawn] - (self._ends - lengths[self.drawn])  # from a place on that line to a row

    def sample(self, batch_size: int, members: tuple[int, ...] = ()) -> Batch:
        """Rows [members, batch_size], each member's from its own resample, every row of it as likely as any other."""
        if members != (len(self.drawn),):
            raise ValueError(f"there are resamples for {len(self.drawn)} members, batches were asked for {members}")
        return gather(self.columns, self.rows(batch_size))

    def rows(self, count: int) -> Tensor:
        shape, device = (len(self.drawn), count), self.generator.device
        # In double precision: single would reach no more than 2^24 rows.
        uniform = torch.rand(shape, generator=self.generator, device=device, dtype=torch.float64)
        places = (uniform * self._ends[:, -1:]).long()
        return places + self._to_row.gather(1, torch.searchsorted(self._ends, places, right=True))

    def mean_over_episodes(self, values: Tensor) -> Tensor:
        """Each member's mean [members] over its resample of what it says of every episode, [members, episodes]."""
        return values.gather(1, self.drawn).mean(1)
