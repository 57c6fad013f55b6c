"""World models: act with a memory, store what is seen in order, and replay so many steps for each that is taken."""

from __future__ import annotations

from typing import Any

import torch

from rl_training.algorithms.core.config import SequenceConfig
from rl_training.data import RecurrentReplayBuffer
from rl_training.runtime.lanes.acting import ActingLane, Actor
from rl_training.runtime.state import CollectResult


class SequenceLane(ActingLane):
    """Updates are owed from `learning_starts` on, or from the first whole window; what was before is not made up for.

    For each step of an environment `train_ratio` steps are replayed, batch_size * window of them in an update.
    """

    replay: RecurrentReplayBuffer

    def __init__(self, actor: Actor, buffer: RecurrentReplayBuffer, config: SequenceConfig) -> None:
        super().__init__(actor, buffer)
        self.replay, self.config = buffer, config
        self.began, self.updates = -1, 0  # the step from which updates are owed, and how many were
        self._owed = 0

    def collect(self, limit: int) -> CollectResult:
        result = CollectResult()
        row, remembered = self.act(None, result), self.actor.memory.rows or {}
        self.replay.add({**row, **{name: remembered[name] for name in self.replay.latents}})
        if self.began < 0 and self.step >= self.config.learning_starts and self.replay.num_windows:
            self.began = self.step
        self._owed = self._updates_so_far() - self.updates
        if self._owed:
            self.updates += self._owed
            replayed = self.updates * self.config.batch_size * self.config.window
            result.metrics["train_ratio"] = torch.tensor(replayed / (self.step - self.began), device=self.actor.device)
        return result

    def due(self) -> int:
        return self._owed

    def _updates_so_far(self) -> int:
        """Updates since the beginning, by the steps since then."""
        if self.began < 0:
            return 0
        steps = self.config.batch_size * self.config.window
        return int((self.step - self.began) * self.config.train_ratio / steps)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "began": self.began, "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        self.began, self.updates = state["began"], state["updates"]
        reasons = super().load_state_dict(state)
        if reasons:  # the environments start anew
            self.replay.mark_boundary()
        return reasons
