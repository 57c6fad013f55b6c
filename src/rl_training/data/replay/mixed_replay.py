"""Batches drawn partly from a dataset, or a ring that stands for one, and partly from a ring that is still growing."""

from __future__ import annotations

from typing import Any

import torch

from rl_training.data.datasets.transition_dataset import TransitionDataset
from rl_training.data.replay.replay_buffer import ReplayBuffer
from rl_training.types import Batch


class MixedReplay:
    """`ratio` of every batch comes from the dataset; the columns are those that both have."""

    samples_on_device = True

    def __init__(self, dataset: TransitionDataset | ReplayBuffer, replay: ReplayBuffer, ratio: float) -> None:
        if not 0 <= ratio <= 1:
            raise ValueError(f"the share of the dataset must be in [0, 1], got {ratio}")
        self.dataset, self.replay, self.ratio = dataset, replay, ratio
        replay.generator = dataset.generator  # one stream for both, so that one state restores them
        self._shared = [name for name in replay.columns if name in dataset.columns]

    @property
    def generator(self) -> torch.Generator:
        return self.dataset.generator

    def sample(self, batch_size: int, members: tuple[int, ...] = ()) -> Batch:
        before = round(self.ratio * batch_size)
        old, new = self.dataset.sample(before, members), self.replay.sample(batch_size - before, members)
        return {name: torch.cat([old[name], new[name]], len(members)) for name in self._shared}

    def state_dict(self) -> dict[str, Any]:
        return self.replay.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.replay.load_state_dict(state)
