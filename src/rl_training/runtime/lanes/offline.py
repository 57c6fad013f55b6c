"""Offline: every step of time is one update on rows that were there before."""

from __future__ import annotations

from typing import Any

from rl_training.data import TransitionDataset
from rl_training.runtime.state import CollectResult


class OfflineLane:
    replay = None

    def __init__(self, dataset: TransitionDataset) -> None:
        self.source, self.step, self._owed = dataset, 0, 0

    def collect(self, limit: int) -> CollectResult:
        self.step += limit
        self._owed = limit
        return CollectResult()

    def due(self) -> int:
        return self._owed

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step, "source": self.source.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        self.step = state["step"]
        self.source.load_state_dict(state["source"])
        return []
