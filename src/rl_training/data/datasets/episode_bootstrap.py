"""EpisodeBootstrap: a bootstrap resample of episodes for each member of a population."""

import torch
from torch import Tensor

from rl_training.data.datasets.transition_dataset import TransitionDataset
from rl_training.data.sampling import gather
from rl_training.types import Batch


class EpisodeBootstrap(TransitionDataset):
    """A dataset in which each member has its own resample of all episodes, with replacement."""

    def __init__(self, dataset: TransitionDataset, members: int, *, seed: int = 0) -> None:
        super().__init__(dataset.columns, episode_ends=dataset.episode_ends, spec=dataset.spec)
        starts = dataset.first_rows
        lengths = torch.diff(starts, append=starts.new_tensor([len(dataset)]))
        # Whole episodes, since rows of one are not independent. Equal seeds give equal resamples, whatever the policy.
        resamples = torch.randint(len(starts), (members, len(starts)), generator=torch.Generator().manual_seed(seed))
        self.resamples = resamples.to(starts.device)  # episode numbers, [members, episodes]
        self._ends = lengths[self.resamples].cumsum(1)  # of the resampled episodes, concatenated
        # Added to a position in the concatenation, this gives the row of the dataset.
        self._to_row = starts[self.resamples] - (self._ends - lengths[self.resamples])

    def sample(self, batch_size: int, members: tuple[int, ...] = ()) -> Batch:
        """Samples rows [members, batch_size] uniformly, each member's from its own resample."""
        if members != (len(self.resamples),):
            raise ValueError(f"there are resamples for {len(self.resamples)} members, got members={members}")
        shape, device = (*members, batch_size), self.generator.device
        # float32 cannot address more than 2^24 rows.
        uniform = torch.rand(shape, generator=self.generator, device=device, dtype=torch.float64)
        positions = (uniform * self._ends[:, -1:]).long()
        offsets = self._to_row.gather(1, torch.searchsorted(self._ends, positions, right=True))
        return gather(self.columns, positions + offsets)

    def mean_over_episodes(self, values: Tensor) -> Tensor:
        """Mean of per-episode values [members, episodes] over each member's resample, [members]."""
        return values.gather(1, self.resamples).mean(1)
