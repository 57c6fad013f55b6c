"""Online replay: act, store, then some updates on rows drawn from the replay."""

from __future__ import annotations

from typing import Any

from rl_training.algorithms.core.config import ReplayConfig
from rl_training.data import ReplayBuffer
from rl_training.runtime.lanes.acting import ActingLane, Actor
from rl_training.runtime.policies import RandomPolicy
from rl_training.runtime.state import CollectResult


class ReplayLane(ActingLane):
    replay: ReplayBuffer

    def __init__(self, actor: Actor, buffer: ReplayBuffer, config: ReplayConfig) -> None:
        super().__init__(actor, buffer)
        self.replay, self.config, self.random = buffer, config, RandomPolicy(actor.pool.spec)

    def collect(self, limit: int) -> CollectResult:
        result = CollectResult()
        for _ in range(self.config.collect_steps):
            policy = self.random if self.step < self.config.learning_starts else None
            self.source.add(self.act(policy, result))
        return result

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        reasons = super().load_state_dict(state)
        if reasons:  # the environments start anew
            self.replay.mark_boundary()
        return reasons

    def due(self) -> int:
        return self.config.updates_per_collect if self.step > self.config.learning_starts else 0
