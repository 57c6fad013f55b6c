"""On-policy: a rollout of fixed length, prepared once, then epochs of minibatches over it."""

from __future__ import annotations

from typing import Any

from rl_training.algorithms import Learner
from rl_training.algorithms.config import RolloutConfig
from rl_training.data import RolloutBuffer
from rl_training.runtime.lanes.acting import Actor
from rl_training.runtime.state import CollectResult


class RolloutLane:
    def __init__(self, learner: Learner, actor: Actor, buffer: RolloutBuffer, config: RolloutConfig) -> None:
        rows = config.num_steps * actor.pool.num_envs
        if rows % config.batch_size:
            raise ValueError(f"batch_size must divide num_steps * num_envs = {rows}, got {config.batch_size}")
        self.learner, self.actor, self.source, self.config = learner, actor, buffer, config
        self.step, self._due = 0, config.epochs * (rows // config.batch_size)

    def collect(self, limit: int) -> CollectResult:
        result = CollectResult()
        self.source.clear()
        for _ in range(self.config.num_steps):
            row, moved = self.actor.step(self.actor.choose())
            self.source.append(row)
            result.num_env_steps += len(moved.rewards)
            result.episodes += moved.finished
        self.step += result.num_env_steps
        prepared = self.learner.prepare(self.source.stack())
        self.source.fill({name: column.flatten(0, 1) for name, column in prepared.items()})
        return result

    def due(self) -> int:
        return self._due

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step, "actor": self.actor.state_dict(), "source": self.source.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        self.step = state["step"]
        self.source.load_state_dict(state["source"])
        return self.actor.load_state_dict(state["actor"])
