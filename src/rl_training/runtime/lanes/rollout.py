"""On-policy: a rollout of fixed length, prepared once, then epochs of minibatches over it."""

from __future__ import annotations

from rl_training.algorithms import Learner
from rl_training.algorithms.config import RolloutConfig
from rl_training.data import RolloutBuffer
from rl_training.runtime.lanes.acting import ActingLane, Actor
from rl_training.runtime.state import CollectResult
from rl_training.types import Batch


class RolloutLane(ActingLane):
    def __init__(self, learner: Learner, actor: Actor, buffer: RolloutBuffer, config: RolloutConfig) -> None:
        rows = config.num_steps * actor.pool.num_envs
        if rows % config.batch_size:
            raise ValueError(f"batch_size must divide num_steps * num_envs = {rows}, got {config.batch_size}")
        super().__init__(actor, buffer)
        self.learner, self.config, self._due = learner, config, config.epochs * (rows // config.batch_size)

    def collect(self, limit: int) -> CollectResult:
        result = CollectResult()
        self.source.clear()
        for _ in range(self.config.num_steps):
            self.source.append(self.act(None, result))
        prepared = self.learner.prepare(self.rewarded(self.source.stack(), result))
        self.source.fill({name: column.flatten(0, 1) for name, column in prepared.items()})
        return result

    def rewarded(self, rollout: Batch, result: CollectResult) -> Batch:
        """The rollout as the learner is paid for it; `result` takes what there is to tell of that."""
        return rollout

    def due(self) -> int:
        return self._due
