"""Sequence lane (world models): a recurrent policy acts, and windows of stored steps are replayed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from rl_training import streams
from rl_training.algorithms import Learner
from rl_training.algorithms.core.config import AlgorithmConfig, SequenceConfig
from rl_training.data import RecurrentReplayBuffer
from rl_training.data.sampling import Layout
from rl_training.runtime.lanes.acting import ActingLane, Actor
from rl_training.runtime.lanes.captured_acting import new_actor
from rl_training.runtime.lanes.context import LaneContext
from rl_training.runtime.state import CollectResult

STORED_WITH_STEPS = ("action", "is_first")  # entries of a memory that the replay buffer stores anyway


class SequenceLane(ActingLane):
    """Replays `train_ratio` steps per environment step, batch_size * window of them in each update.

    Updates start at `learning_starts` or with the first whole window. No extra updates make up for earlier steps.
    """

    config_types: ClassVar[tuple[type[AlgorithmConfig], ...]] = (SequenceConfig,)
    compile_after: ClassVar[Mapping[str, int]] = {"cuda": 10_000}  # on a CPU the small operations cost little
    replay: RecurrentReplayBuffer

    def __init__(self, actor: Actor, buffer: RecurrentReplayBuffer, config: SequenceConfig) -> None:
        super().__init__(actor, buffer)
        self.replay, self.config = buffer, config
        self.began, self.updates = -1, 0  # the step of the first update, and the number of updates since

    @classmethod
    def build(cls, context: LaneContext) -> SequenceLane:
        actor, options = new_actor(context), context.options
        latents = stored_memory(context.learner) if options.stored_latents else None
        size = RecurrentReplayBuffer.row_bytes(actor.pool.spec, latents)
        context.require_memory("buffer_size", options.buffer_size, size)
        replay = RecurrentReplayBuffer(
            options.buffer_size, actor.pool.spec, num_envs=actor.pool.num_envs, window=options.window,
            latents=latents, device=actor.device,
        )  # fmt: skip
        replay.seed(streams.derive(context.seed, "sampling"))
        return cls(actor, replay, options)

    @classmethod
    def count_updates(cls, options: Any, steps: int, num_envs: int) -> int:
        return int(steps * options.train_ratio / (options.batch_size * options.window))

    @classmethod
    def first_update(cls, options: Any) -> str:
        steps = options.batch_size * options.window / options.train_ratio
        return (
            f"after {options.learning_starts:,} steps (learning_starts) and a whole window of {options.window}, "
            f"with an update every {steps:,.4g} steps (train_ratio)"
        )

    @classmethod
    def steps_to_update(cls, options: Any, num_envs: int) -> int:
        steps = options.batch_size * options.window / options.train_ratio
        return max(options.learning_starts, options.window) + math.ceil(steps)

    def collect(self, limit: int) -> CollectResult:
        result = CollectResult()
        batch, memory = self.act(None, result), self.actor.memory.rows or {}
        self.replay.add({**batch, **{name: memory[name] for name in self.replay.latents}})
        if self.began < 0 and self.step >= self.config.learning_starts and self.replay.num_windows:
            self.began = self.step
        total = 0 if self.began < 0 else self.count_updates(self.config, self.step - self.began, 1)
        self._due = total - self.updates
        if self._due:
            self.updates += self._due
            replayed = self.updates * self.config.batch_size * self.config.window
            result.metrics["train_ratio"] = torch.tensor(replayed / (self.step - self.began), device=self.actor.device)
        return result

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "began": self.began, "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        self.began, self.updates = state["began"], state["updates"]
        return super().load_state_dict(state)


def stored_memory(learner: Learner) -> dict[str, Layout]:
    """Returns the layout of the memory stored with each step, floats in half precision."""
    return {
        name: (tuple(rows.shape[1:]), torch.float16 if rows.is_floating_point() else rows.dtype)
        for name, rows in learner.initial_memory(1).items()
        if name not in STORED_WITH_STEPS
    }
