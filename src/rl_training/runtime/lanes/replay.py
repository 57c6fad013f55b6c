"""Replay lane: environment steps go into a replay buffer, and each collect is followed by updates on it."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from rl_training import streams
from rl_training.algorithms.core.config import AlgorithmConfig, ReplayConfig
from rl_training.data import FrameReplayBuffer, HindsightReplayBuffer, ReplayBuffer
from rl_training.envs.goals import GoalRewards
from rl_training.runtime.lanes.acting import ActingLane, Actor
from rl_training.runtime.lanes.captured_acting import CapturedActor, CapturedStorage, new_actor
from rl_training.runtime.lanes.captured_steps import CapturedCollect
from rl_training.runtime.lanes.context import LaneContext
from rl_training.runtime.policies import RandomPolicy
from rl_training.runtime.state import CollectResult

PRIORITY_OPTIONS = ("prioritized", "priority_alpha")  # only some algorithms have them


class ReplayLane(ActingLane):
    config_types: ClassVar[tuple[type[AlgorithmConfig], ...]] = (ReplayConfig,)
    takes_population: ClassVar[bool] = True
    can_overlap: ClassVar[bool] = True
    times_updates: ClassVar[bool] = True
    replay: ReplayBuffer

    def __init__(self, actor: Actor, buffer: ReplayBuffer, config: ReplayConfig) -> None:
        super().__init__(actor, buffer)
        self.replay, self.config, self.random = buffer, config, RandomPolicy(actor.pool.spec)
        self.collected = 0  # steps of a collect that is not complete
        self.captured = CapturedCollect.build(actor, buffer, config.collect_steps, self.random)
        self.storage = CapturedStorage(actor, buffer) if isinstance(actor, CapturedActor) else None

    @classmethod
    def build(cls, context: LaneContext) -> ReplayLane:
        actor = new_actor(context)
        lane = cls(actor, new_replay(context, actor.device), context.options)
        lane.overlap = context.overlap
        return lane

    @classmethod
    def count_updates(cls, options: Any, steps: int, num_envs: int) -> int:
        return int(steps // (num_envs * options.collect_steps) * options.updates_per_collect)

    @classmethod
    def first_update(cls, options: Any) -> str:
        return f"after {options.learning_starts:,} steps (learning_starts)"

    @classmethod
    def steps_to_update(cls, options: Any, num_envs: int) -> int:
        collected = num_envs * options.collect_steps
        return int(options.learning_starts // collected) * collected + 1

    def collect(self, limit: int) -> CollectResult:
        result = CollectResult()
        if self.captured is not None and not self.collected:
            result.num_env_steps = self.captured.collect(self.config.learning_starts - self.step)
            self.step += result.num_env_steps
            if result.num_env_steps:
                return result
        while self.collected < self.config.collect_steps:
            self._act_and_store(result)
            self.collected += 1
            if self.is_overdue() and self.collected < self.config.collect_steps and not self.replay.members:
                result.cut = True
                return result
        self.collected = 0
        return result

    def _act_and_store(self, result: CollectResult) -> None:
        policy = self.random if self.step < self.config.learning_starts else None
        last = self.collected + 1 == self.config.collect_steps
        meanwhile = self._update if self.overlap and last else None
        if self.storage is None:
            self.source.add(self.act(policy, result, meanwhile))
        else:
            self.count(self.storage.actor.step_pool(self.actor.choose(policy), meanwhile), result)
            self.storage.store()

    def _update(self) -> None:
        """Runs the updates of this collect while the environments take its last step, which they do not sample yet."""
        count = self._due_at(self.step + self.actor.pool.num_envs)
        if count and self.replay.added:
            self.run_updates(count)

    def due(self) -> int:
        return 0 if self.overlap else self._due_at(self.step)

    def _due_at(self, step: int) -> int:
        return self.config.updates_per_collect if step > self.config.learning_starts else 0

    def state_dict(self) -> dict[str, Any]:
        collected = {"collected": self.collected} if self.collected else {}
        return {**super().state_dict(), **collected}

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        self.collected = state.get("collected", 0)
        return super().load_state_dict(state)


def new_replay(context: LaneContext, device: torch.device) -> ReplayBuffer:
    """Returns the replay buffer that the options and the environment need."""
    options, pool, spec = context.options, context.pool, context.pool.spec
    kind, own, sizes = _buffer_kind(context)
    size = kind.row_bytes(spec, prioritized=getattr(options, "prioritized", False), **sizes)
    context.require_memory("buffer_size", options.buffer_size, size)
    replay = kind(
        options.buffer_size, spec, device=device, stride=pool.num_envs, gamma=options.gamma,
        members=len(context.learners) if len(context.learners) > 1 else None, n_step=options.n_step,
        **{name: getattr(options, name) for name in PRIORITY_OPTIONS if hasattr(options, name)}, **own,
    )  # fmt: skip
    replay.seed(streams.derive(context.seed, "sampling"))
    return replay


def _buffer_kind(context: LaneContext) -> tuple[type[ReplayBuffer], dict[str, Any], dict[str, Any]]:
    """Returns the class, the options that only it has, and those of them that set the size of a row."""
    options, pool = context.options, context.pool
    if getattr(options, "hindsight", "none") == "none":
        stacked = getattr(options, "stacked_frames", None)
        by_frames = pool.stacks_frames if stacked is None else stacked
        return (FrameReplayBuffer if by_frames else ReplayBuffer), {}, {}
    if pool.on_device:
        raise ValueError(
            "hindsight needs an environment with compute_reward, and env_backend: device has none; "
            "set env_backend to gymnasium"
        )
    size = {"goals": options.hindsight_goals}
    seed = streams.derive(context.seed, "hindsight")
    outcomes = GoalRewards(pool.source, pool.spec)
    return HindsightReplayBuffer, {"outcomes": outcomes, "strategy": options.hindsight, "goal_seed": seed, **size}, size
