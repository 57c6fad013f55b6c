"""Fine-tuning lane: updates on a dataset first, then environment steps with batches from dataset and replay buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from rl_training.algorithms import Learner
from rl_training.data import ReplayBuffer, TransitionDataset
from rl_training.data.datasets.returns import returns_to_go
from rl_training.data.replay.mixed_replay import MixedReplay
from rl_training.runtime.lanes.acting import ActingLane, Actor
from rl_training.runtime.lanes.captured_acting import new_actor
from rl_training.runtime.lanes.context import FineTuning, LaneContext
from rl_training.runtime.lanes.offline import seeded_dataset
from rl_training.runtime.state import CollectResult
from rl_training.types import Batch

MAX_REPLAY = 1_000_000  # transitions


class FineTuneLane(ActingLane):
    """A step is an update up to `offline_steps`, and an environment step afterwards.

    If the replay buffer has a column of `supplies`, transitions are added when their episode ends; `gamma` is the
    discount of returns-to-go.
    """

    offline: ClassVar[bool] = True
    supplies: ClassVar[tuple[str, ...]] = ("returns_to_go", "next_actions")
    times_updates: ClassVar[bool] = True
    replay: ReplayBuffer

    def __init__(
        self, dataset: TransitionDataset, actor: Actor, replay: ReplayBuffer, settings: FineTuning, *,
        batch_size: int, gamma: float, learners: Sequence[Learner] = (),
    ) -> None:  # fmt: skip
        super().__init__(actor, dataset)
        self.mixed = MixedReplay(dataset, replay, settings.offline_ratio)
        self.replay, self.settings = replay, settings
        self.batch_size, self.gamma, self.learners = batch_size, gamma, learners
        self.unfinished: list[list[Batch]] = [[] for _ in range(actor.pool.num_envs)]  # steps of running episodes

    @classmethod
    def build(cls, context: LaneContext) -> FineTuneLane:
        dataset, settings, options = seeded_dataset(context), context.fine_tuning, context.options
        if settings is None:
            raise ValueError("fine-tuning needs its settings: LaneContext.fine_tuning is None")
        actor = new_actor(context)
        # Room for all online steps, so that the longest episode fits.
        capacity = min(max(settings.online_steps, actor.pool.num_envs), MAX_REPLAY)
        extra = {column.name: column.layout(dataset.columns) for column in context.learner.needs}
        context.require_memory("online_steps", capacity, ReplayBuffer.row_bytes(actor.pool.spec, extra=extra))
        replay = ReplayBuffer(capacity, actor.pool.spec, device=actor.device, extra=extra)
        return cls(
            dataset, actor, replay, settings, batch_size=options.batch_size, gamma=options.gamma,
            learners=context.learners,
        )  # fmt: skip

    @property
    def has_batch(self) -> bool:
        """Whether enough transitions have been stored for online updates."""
        return self.replay.added >= self.batch_size

    @property
    def is_too_short(self) -> bool:
        """Whether the online phase ends before it can store a batch."""
        num_envs = self.actor.pool.num_envs
        return -(-self.settings.online_steps // num_envs) * num_envs < self.batch_size

    def collect(self, limit: int) -> CollectResult:
        result, offline_steps = CollectResult(), self.settings.offline_steps
        if self.step < offline_steps:
            self.source = self.mixed.dataset
            self._due = min(limit, offline_steps - self.step)
            self.step += self._due
            return result
        if self.step == offline_steps:
            for learner in self.learners:
                learner.start_online()
        self.source = self.mixed
        batch = self.act(None, result)
        self._store({**batch, "rewards": self.settings.rewards(batch["rewards"])})
        self._due = self.settings.updates_per_step * result.num_env_steps if self.has_batch else 0
        return result

    def _store(self, batch: Batch) -> None:
        if self.replay.columns.keys().isdisjoint(self.supplies):
            self.replay.add(batch)
            return
        ended = ((batch["dones"] + batch["truncated"]) > 0).tolist()
        for env, (steps, episode_ended) in enumerate(zip(self.unfinished, ended, strict=True)):
            steps.append({name: column[env : env + 1] for name, column in batch.items()})
            if episode_ended:
                self.replay.add(self._completed(_joined(steps)))
                steps.clear()

    def _completed(self, episode: Batch) -> Batch:
        """Adds the columns that only a whole episode has; the last row has no next action and repeats its own."""
        actions = episode["actions"]
        whole = {
            **episode,
            "next_actions": torch.cat([actions[1:], actions[-1:]]),
            "returns_to_go": self._returns(episode),
        }
        return {name: whole[name] for name in self.replay.columns}

    def _returns(self, episode: Batch) -> Tensor:
        rewards, dones = (episode[name].double().cpu().numpy() for name in ("rewards", "dones"))
        ends = (dones + episode["truncated"].cpu().numpy()) > 0
        return torch.from_numpy(returns_to_go(rewards, ends, dones > 0, self.gamma)).to(episode["rewards"])

    def state_dict(self) -> dict[str, Any]:
        unfinished = {str(env): _joined(steps) for env, steps in enumerate(self.unfinished) if steps}
        state = {"step": self.step, "actor": self.actor.state_dict(), "source": self.mixed.state_dict()}
        return {**state, "waiting": unfinished}

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        self.step = state["step"]
        if "actor" not in state:  # of a run on the dataset alone
            self.mixed.dataset.load_state_dict(state["source"])
            return []
        self.mixed.load_state_dict(state["source"])
        for env, saved in state["waiting"].items():
            steps = {name: column.to(self.actor.device) for name, column in saved.items()}
            count = len(steps["obs"])
            self.unfinished[int(env)] = [{name: c[i : i + 1] for name, c in steps.items()} for i in range(count)]
        reasons = self.actor.load_state_dict(state["actor"])
        if reasons:  # the environments were reset, so these episodes never end
            self.unfinished = [[] for _ in self.unfinished]
        return reasons


def _joined(steps: list[Batch]) -> Batch:
    return {name: torch.cat([step[name] for step in steps]) for name in steps[0]}
