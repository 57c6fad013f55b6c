"""MixedReplay: batches from a dataset (or a replay buffer in its place) and a replay buffer."""

from typing import Any

import torch

from rl_training.data.datasets.transition_dataset import TransitionDataset
from rl_training.data.replay.replay_buffer import ReplayBuffer
from rl_training.data.sampling import DeviceSampling
from rl_training.types import Batch


class MixedReplay(DeviceSampling):
    """Samples a fraction `ratio` of each batch from the dataset; batches hold the columns that both have."""

    def __init__(self, dataset: TransitionDataset | ReplayBuffer, replay: ReplayBuffer, ratio: float) -> None:
        if not 0 <= ratio <= 1:
            raise ValueError(f"ratio of dataset rows must be in [0, 1], got {ratio}")
        self.dataset, self.replay, self.ratio = dataset, replay, ratio
        replay.generator = dataset.generator  # shared, so that one state restores both
        self._shared = [name for name in replay.columns if name in dataset.columns]

    @property
    def generator(self) -> torch.Generator:
        return self.dataset.generator

    def sample(self, batch_size: int, members: tuple[int, ...] = ()) -> Batch:
        count = round(self.ratio * batch_size)
        offline, online = self.dataset.sample(count, members), self.replay.sample(batch_size - count, members)
        return {name: torch.cat([offline[name], online[name]], len(members)) for name in self._shared}

    def state_dict(self) -> dict[str, Any]:
        return self.replay.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.replay.load_state_dict(state)
