"""Online replay: act, store, then some updates on rows drawn from the ring."""

from __future__ import annotations

from typing import Any

from rl_training.algorithms.config import ReplayConfig
from rl_training.data import ReplayBuffer
from rl_training.runtime.lanes.acting import Actor
from rl_training.runtime.policies import RandomPolicy
from rl_training.runtime.state import CollectResult


class ReplayLane:
    def __init__(self, actor: Actor, buffer: ReplayBuffer, config: ReplayConfig) -> None:
        self.actor, self.source, self.config, self.step = actor, buffer, config, 0
        self.random = RandomPolicy(actor.pool.spec)

    def collect(self, limit: int) -> CollectResult:
        result = CollectResult()
        for _ in range(self.config.collect_steps):
            policy = self.random if self.step < self.config.learning_starts else None
            row, moved = self.actor.step(self.actor.choose(policy))
            self.source.add(row)
            self.step += self.actor.pool.num_envs
            result.num_env_steps += self.actor.pool.num_envs
            result.episodes += moved.finished
        return result

    def due(self) -> int:
        return self.config.updates_per_collect if self.step > self.config.learning_starts else 0

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step, "actor": self.actor.state_dict(), "source": self.source.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        self.step = state["step"]
        self.source.load_state_dict(state["source"])
        return self.actor.load_state_dict(state["actor"])
