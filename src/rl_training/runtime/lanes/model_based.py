"""Model-based: a lane of real rows, a model fitted to them, and batches mixed of both kinds of rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms.dynamics import RolloutSchedule
from rl_training.algorithms.mbpo import MBPOAlgorithm
from rl_training.data.replay.mixed_replay import MixedReplay
from rl_training.data.replay.model_replay import ModelReplayBuffer
from rl_training.runtime.lanes.model_fit import ModelFit, full_precision
from rl_training.runtime.lanes.offline import OfflineLane
from rl_training.runtime.lanes.replay import ReplayLane
from rl_training.runtime.state import CollectResult
from rl_training.types import Batch


class ModelBasedLane:
    """Time is that of the real lane, and stands still while the model is fitted, a pass over the rows a `collect`.

    Acting, the model is fitted when the random steps are over and every `model_train_interval` steps from there on;
    offline, once at the beginning. Every `rollout_interval` steps the policy then acts in the model.
    """

    def __init__(
        self, real: ReplayLane | OfflineLane, learner: MBPOAlgorithm, fit: ModelFit, imagined: ModelReplayBuffer
    ) -> None:
        self.real, self.learner, self.fit, self.imagined = real, learner, fit, imagined
        self.config, self.generator = learner.config, fit.rows.generator
        self.source = MixedReplay(real.source, imagined, self.config.real_ratio)
        self.schedule = RolloutSchedule(*self.config.rollout_schedule)
        self.fitted_at = self.branched_at = -1  # steps of the last fit's beginning, and of the last rollouts
        self._owed = 0

    @property
    def step(self) -> int:
        return self.real.step

    @property
    def replay(self) -> ReplayParts:
        real = {} if self.real.replay is None else self.real.replay.parts()
        return ReplayParts({**real, "model": self.imagined})

    def collect(self, limit: int) -> CollectResult:
        self._owed = 0
        if not self.fit.running and self._fit_is_due():
            self.fitted_at = self.step
            self.fit.begin()
        if self.fit.running:
            return self._fit_on()
        interval = self.config.rollout_interval
        told = self.branch() if self.fitted_at >= 0 and self._passed(self.branched_at, interval) else {}
        result = self.real.collect(min(limit, interval - self.step % interval))
        result.metrics |= told
        self._owed = self.real.due() if len(self.imagined) else 0
        return result

    def due(self) -> int:
        return self._owed

    def _fit_is_due(self) -> bool:
        if isinstance(self.real, OfflineLane):
            return self.fitted_at < 0
        started = self.step >= self.config.learning_starts
        return started and self._passed(self.fitted_at, self.config.model_train_interval)

    def _passed(self, last: int, interval: int) -> bool:
        return last < 0 or self.step // interval > last // interval

    def _fit_on(self) -> CollectResult:
        metrics = self.fit.epoch()
        return CollectResult(metrics=metrics, doing=f"fitting the model: pass {self.fit.epochs}")

    @torch.no_grad()
    def branch(self) -> dict[str, Tensor]:
        """Rollouts of the policy in the model, from states that were really visited, until their length or end."""
        self.branched_at, length = self.step, self.schedule.at(self.step)
        self.imagined.keep(self.config.model_retention * length * self.config.rollout_batch_size)
        obs = self.source.dataset.sample(self.config.rollout_batch_size)["obs"]
        added = dropped = 0
        for _ in range(length):
            rows = self._imagine(obs)
            sane = (rows["next_obs"].isfinite().all(-1) & rows["rewards"].isfinite()).nonzero().squeeze(1)
            rows = {name: column[sane] for name, column in rows.items()}
            self.imagined.add(rows)
            added, dropped = added + len(sane), dropped + len(obs) - len(sane)
            obs = rows["next_obs"][rows["dones"] == 0]
            if not len(obs):
                break
        told = {"rollout_length": length, "model_rows": added, "model_rows_dropped": dropped}
        return {name: torch.tensor(float(value), device=obs.device) for name, value in told.items()}

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


class ReplayParts:
    """Rows to save of more than one replay, by name."""

    def __init__(self, parts: dict[str, Any]) -> None:
        self._parts = parts

    def parts(self) -> dict[str, Any]:
        return self._parts
