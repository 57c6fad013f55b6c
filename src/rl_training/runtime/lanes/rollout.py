"""Rollout lane (on-policy): a rollout of fixed length, prepared once, then epochs of minibatches over it."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from rl_training import streams
from rl_training.algorithms import Learner
from rl_training.algorithms.core.config import AlgorithmConfig, BaseRolloutConfig
from rl_training.algorithms.core.memory import prepared_rows
from rl_training.algorithms.core.updater import load_tensors
from rl_training.data import RolloutBuffer
from rl_training.runtime.lanes.acting import ActingLane, Actor
from rl_training.runtime.lanes.captured_acting import new_actor
from rl_training.runtime.lanes.captured_steps import CapturedSteps, stacked_steps
from rl_training.runtime.lanes.context import LaneContext
from rl_training.runtime.lanes.rollout_reward_scale import RolloutRewardScale
from rl_training.runtime.state import CollectResult
from rl_training.types import Batch


class RolloutLane(ActingLane):
    """A rollout interrupted by a stop is saved with the lane and continued on resume."""

    config_types: ClassVar[tuple[type[AlgorithmConfig], ...]] = (BaseRolloutConfig,)

    def __init__(self, learner: Learner, actor: Actor, buffer: RolloutBuffer, config: BaseRolloutConfig) -> None:
        envs = actor.pool.num_envs
        steps = config.num_steps * envs
        if steps % config.batch_size:
            raise ValueError(f"batch_size must divide num_steps * num_envs = {steps}, got {config.batch_size}")
        super().__init__(actor, buffer)
        self.learner, self.config, self._due = learner, config, config.epochs * (steps // config.batch_size)
        self._is_cut = False
        captures = actor.pool.on_device and actor.pool.capturable and actor.device.type == "cuda"
        self.captured = CapturedSteps(actor, partial(stacked_steps, actor, config.num_steps)) if captures else None
        self.scale = RolloutRewardScale(envs, config.gamma).to(actor.device) if config.normalize_rewards else None

    @classmethod
    def build(cls, context: LaneContext) -> RolloutLane:
        return cls(context.learner, new_actor(context), new_rollout_buffer(context), context.options)

    def collect(self, limit: int) -> CollectResult:
        result = CollectResult()
        steps = self._steps(result) if self.captured is None else self._captured_steps(self.captured, result)
        if steps is None:
            return result
        rollout = self.rewarded(steps, result)
        if self.scale is not None:
            ends = rollout["dones"] + rollout["truncated"]  # never both
            rollout["rewards"] = self.scale(rollout["rewards"], ends)
        self.source.fill(prepared_rows(self.learner, rollout))
        return result

    def _captured_steps(self, captured: CapturedSteps[Batch], result: CollectResult) -> Batch:
        rollout = captured()
        result.num_env_steps = self.config.num_steps * self.actor.pool.num_envs
        self.step += result.num_env_steps
        return rollout

    def _steps(self, result: CollectResult) -> Batch | None:
        """Returns the stacked steps, or None if a request to stop has cut them."""
        if not self._is_cut:
            self.source.clear()
        while len(self.source) < self.config.num_steps:
            self.source.append(self.act(None, result))
            if self.is_overdue() and len(self.source) < self.config.num_steps:
                result.cut = self._is_cut = True
                return None
        self._is_cut = False
        return self.source.stack()

    def rewarded(self, rollout: Batch, result: CollectResult) -> Batch:
        """Returns the rollout with the rewards the learner trains on; subclasses replace them and add metrics."""
        return rollout

    def state_dict(self) -> dict[str, Any]:
        scale = {} if self.scale is None else {"reward_scale": dict(self.scale.named_buffers())}
        rollout = {"rollout": self.source.stack()} if self._is_cut else {}
        return {**super().state_dict(), **scale, **rollout}

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        if self.scale is not None:
            load_tensors(dict(self.scale.named_buffers()), state["reward_scale"])
        reasons = super().load_state_dict(state)
        if "rollout" in state:
            self._continue_rollout(state["rollout"], ended=bool(reasons))
        if self.scale is not None and reasons and not self._is_cut:
            # The environments were reset, so their episodes start again. A cut rollout began before that.
            self.scale.sums.zero_()
        return reasons

    def _continue_rollout(self, rollout: Batch, *, ended: bool) -> None:
        """Continues a saved rollout. `ended`: the environments were reset, so its episodes are truncated here."""
        if ended:
            rollout["truncated"][-1] = 1 - rollout["dones"][-1]
        self._is_cut = True
        self.source.clear()
        for step in range(len(rollout["obs"])):
            self.source.append({name: column[step].to(self.actor.device) for name, column in rollout.items()})


def new_rollout_buffer(context: LaneContext) -> RolloutBuffer:
    buffer = RolloutBuffer(context.device, steps_per_row=context.options.steps_per_row)
    buffer.seed(streams.derive(context.seed, "sampling"))
    return buffer
