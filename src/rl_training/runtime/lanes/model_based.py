"""Model-based lane: a real lane, a dynamics model fitted to its transitions, and batches mixed from both."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from rl_training import streams
from rl_training.algorithms import AlgorithmConfig, Dynamics, Learner, ReplayConfig, Updater
from rl_training.algorithms.dynamics import ModelBasedConfig, ModelBasedLearner, RolloutSchedule
from rl_training.data.replay.bootstrap import BootstrapSampler
from rl_training.data.replay.mixed_replay import MixedReplay
from rl_training.data.replay.model_replay import ModelReplayBuffer
from rl_training.envs.terminations import termination_rule
from rl_training.runtime.lanes.context import LaneContext, TrainingLane
from rl_training.runtime.lanes.model_fit import ModelFit, full_precision
from rl_training.runtime.lanes.offline import OfflineLane
from rl_training.runtime.lanes.replay import ReplayLane
from rl_training.runtime.state import CollectResult
from rl_training.types import Batch


class ModelBasedLane(TrainingLane):
    """Counts the steps of the real lane. While the model is fitted, one epoch per `collect`, no steps are taken.

    The model is fitted after the random steps and then every `model_train_interval` steps. Every `rollout_interval`
    steps the policy is rolled out in the model.
    """

    learner_type: ClassVar[type[Learner]] = ModelBasedLearner
    config_types: ClassVar[tuple[type[AlgorithmConfig], ...]] = (ReplayConfig, ModelBasedConfig)
    times_updates: ClassVar[bool] = True
    real_lane: ClassVar[type[ReplayLane | OfflineLane]] = ReplayLane

    def __init__(
        self, real: ReplayLane | OfflineLane, learner: ModelBasedLearner, fit: ModelFit, imagined: ModelReplayBuffer
    ) -> None:
        self.real, self.learner, self.fit, self.imagined = real, learner, fit, imagined
        self.config, self.generator = learner.config, fit.rows.generator
        self.source = MixedReplay(real.source, imagined, self.config.real_ratio)
        self.schedule = RolloutSchedule(*self.config.rollout_schedule)
        self.fitted_at = self.branched_at = -1  # steps at which the last fit and the last model rollouts started

    @classmethod
    def build(cls, context: LaneContext) -> ModelBasedLane:
        real, options, spec, device = cls.real_lane.build(context), context.options, context.spec, context.device
        if not isinstance(context.learner, ModelBasedLearner):
            raise TypeError(f"a model-based lane trains a ModelBasedLearner, got {context.learner.name}")
        with streams.fork(context.seed, "init", "model"):
            dynamics = Dynamics.build(spec, options).to(device)
        if options.termination == "auto":
            dynamics.rule = termination_rule(context.env_id, context.env_kwargs)
        updater = Updater([dynamics], capture=device.type == "cuda")
        generator = streams.generator(context.seed, "model", device=device)
        rows = BootstrapSampler(real.source, options.model_members, generator)
        capacity = options.model_retention * max(options.rollout_schedule[2:]) * options.rollout_batch_size
        context.require_memory("rollout_batch_size", capacity, ModelReplayBuffer.row_bytes(spec), filled=capacity)
        imagined = ModelReplayBuffer(capacity, spec, device=device)
        return cls(real, context.learner, ModelFit(dynamics, updater, rows), imagined)

    @classmethod
    def count_updates(cls, options: Any, steps: int, num_envs: int) -> int:
        return cls.real_lane.count_updates(options, steps, num_envs)

    @classmethod
    def first_update(cls, options: Any) -> str:
        return cls.real_lane.first_update(options)

    @classmethod
    def steps_to_update(cls, options: Any, num_envs: int) -> int:
        return cls.real_lane.steps_to_update(options, num_envs)

    @property
    def step(self) -> int:
        return self.real.step

    @property
    def stop_by(self) -> float:
        return self.real.stop_by

    @stop_by.setter
    def stop_by(self, when: float) -> None:
        self.real.stop_by = when

    def replay_parts(self) -> dict[str, Any]:
        return {**self.real.replay_parts(), "model": self.imagined}

    def collect(self, limit: int) -> CollectResult:
        self._due = 0
        if self._is_cut:
            return self._collect(limit)
        if not self.fit.running and self._fit_is_due():
            self.fitted_at = self.step
            self.fit.begin()
        if self.fit.running:
            metrics = self.fit.epoch()
            return CollectResult(metrics=metrics, doing=f"fitting the model: epoch {self.fit.epochs}")
        interval = self.config.rollout_interval
        metrics = self.branch() if self.fitted_at >= 0 and self._passed(self.branched_at, interval) else {}
        result = self._collect(min(limit, interval - self.step % interval))
        result.metrics |= metrics
        return result

    @property
    def _is_cut(self) -> bool:
        return isinstance(self.real, ReplayLane) and self.real.collected > 0

    def _collect(self, limit: int) -> CollectResult:
        result = self.real.collect(limit)
        self._due = self.real.due() if len(self.imagined) else 0
        return result

    def _fit_is_due(self) -> bool:
        started = self.step >= self.config.learning_starts
        return started and self._passed(self.fitted_at, self.config.model_train_interval)

    def _passed(self, last: int, interval: int) -> bool:
        return last < 0 or self.step // interval > last // interval

    @torch.no_grad()
    def branch(self) -> dict[str, Tensor]:
        """Rolls the policy out in the model from real states, up to the scheduled length or a terminal state."""
        self.branched_at, length = self.step, self.schedule.at(self.step)
        self.imagined.keep(self.config.model_retention * length * self.config.rollout_batch_size)
        obs = self.source.dataset.sample(self.config.rollout_batch_size)["obs"]
        added = dropped = 0
        for _ in range(length):
            batch = self._imagine(obs)
            finite = (batch["next_obs"].isfinite().all(-1) & batch["rewards"].isfinite()).nonzero().squeeze(1)
            batch = {name: column[finite] for name, column in batch.items()}
            self.imagined.add(batch)
            added, dropped = added + len(finite), dropped + len(obs) - len(finite)
            obs = batch["next_obs"][batch["dones"] == 0]
            if not len(obs):
                break
        metrics = {"rollout_length": length, "model_rows": added, "model_rows_dropped": dropped}
        return {name: torch.tensor(float(value), device=obs.device) for name, value in metrics.items()}

    def _imagine(self, obs: Tensor) -> Batch:
        actions = self.learner.act(obs, generator=self.generator).actions
        with full_precision():
            step = self.fit.dynamics.imagine(obs, actions, self.generator)
        return {
            "obs": obs,
            "actions": actions,
            "rewards": self.learner.imagined_rewards(step.rewards, step.prediction),
            "next_obs": step.next_obs,
            "dones": step.ended.float(),
            "truncated": torch.zeros_like(step.rewards),
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "real": self.real.state_dict(), "imagined": self.imagined.state_dict(), "fit": self.fit.state_dict(),
            "generator": self.generator.get_state(), "fitted_at": self.fitted_at, "branched_at": self.branched_at,
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        self.fitted_at, self.branched_at = state["fitted_at"], state["branched_at"]
        self.fit.load_state_dict(state["fit"])
        self.imagined.load_state_dict(state["imagined"])
        self.generator.set_state(state["generator"].cpu())
        return self.real.load_state_dict(state["real"])


class OfflineModelBasedLane(ModelBasedLane):
    """Fits the model once, before the first update."""

    config_types: ClassVar[tuple[type[AlgorithmConfig], ...]] = (ModelBasedConfig,)
    offline: ClassVar[bool] = True
    acts: ClassVar[bool] = False
    real_lane: ClassVar[type[ReplayLane | OfflineLane]] = OfflineLane

    def _fit_is_due(self) -> bool:
        return self.fitted_at < 0
