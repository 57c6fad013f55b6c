"""Offline lane: each step is one update on a batch of a fixed dataset."""

from __future__ import annotations

from typing import Any, ClassVar

from rl_training import streams
from rl_training.data import TransitionDataset
from rl_training.runtime.lanes.context import LaneContext, TrainingLane
from rl_training.runtime.state import CollectResult


class OfflineLane(TrainingLane):
    offline: ClassVar[bool] = True
    acts: ClassVar[bool] = False
    takes_population: ClassVar[bool] = True
    with_online_steps: ClassVar[str] = "fine_tuning"
    times_updates: ClassVar[bool] = True

    def __init__(self, dataset: TransitionDataset) -> None:
        self.source, self.step = dataset, 0

    @classmethod
    def build(cls, context: LaneContext) -> OfflineLane:
        return cls(seeded_dataset(context))

    def collect(self, limit: int) -> CollectResult:
        self.step += limit
        self._due = limit
        return CollectResult()

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step, "source": self.source.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        self.step = state["step"]
        self.source.load_state_dict(state["source"])
        return []


def seeded_dataset(context: LaneContext) -> TransitionDataset:
    if context.dataset is None:
        raise ValueError("this lane needs a dataset")
    context.dataset.seed(streams.derive(context.seed, "sampling"))
    return context.dataset
