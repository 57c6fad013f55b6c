"""Offline, then online: updates on a dataset; then acting, and batches mixed of the dataset and of what was lived."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rl_training.data import ReplayBuffer, TransitionDataset
from rl_training.data.datasets.returns import returns_to_go
from rl_training.data.replay.mixed_replay import MixedReplay
from rl_training.runtime.lanes.acting import ActingLane, Actor
from rl_training.runtime.state import CollectResult
from rl_training.types import Batch


class FineTuneLane(ActingLane):
    """Its time is gradient steps for `offline_steps`, and environment steps from there on.

    `rewards` is what was done to the dataset's rewards. Where the replay has a column returns_to_go, rows wait for the
    end of their episode, which tells them theirs; `gamma` is its discount.
    """

    replay: ReplayBuffer

    def __init__(
        self, dataset: TransitionDataset, actor: Actor, replay: ReplayBuffer, *, offline_steps: int, batch_size: int,
        offline_ratio: float, updates_per_step: int, rewards: Callable[[Tensor], Tensor], gamma: float,
    ) -> None:  # fmt: skip
        super().__init__(actor, dataset)  # which updates draw from while there is nothing else
        self.mixed = MixedReplay(dataset, replay, offline_ratio)
        self.replay, self.offline_steps, self.batch_size = replay, offline_steps, batch_size
        self.updates_per_step, self.rewards, self.gamma = updates_per_step, rewards, gamma
        self.waiting: list[list[Batch]] = [[] for _ in range(actor.pool.num_envs)]  # rows of unfinished episodes
        self._owed = 0

    def collect(self, limit: int) -> CollectResult:
        result = CollectResult()
        if self.step < self.offline_steps:
            self.source = self.mixed.dataset
            self._owed = min(limit, self.offline_steps - self.step)
            self.step += self._owed
            return result
        self.source = self.mixed
        rows = self.act(None, result)
        self._keep({**rows, "rewards": self.rewards(rows["rewards"])})
        self._owed = self.updates_per_step * result.num_env_steps if self.replay.added >= self.batch_size else 0
        return result

    def due(self) -> int:
        return self._owed

    def _keep(self, rows: Batch) -> None:
        if "returns_to_go" not in self.replay.columns:
            self.replay.add(rows)
            return
        ended = ((rows["dones"] + rows["truncated"]) > 0).tolist()
        for env, (waiting, over) in enumerate(zip(self.waiting, ended, strict=True)):
            waiting.append({name: column[env : env + 1] for name, column in rows.items()})
            if over:
                self.replay.add(self._told_returns(_joined(waiting)))
                waiting.clear()

    def _told_returns(self, episode: Batch) -> Batch:
        """The rows of one whole episode, with what each of them led to."""
        rewards, dones = (episode[name].double().cpu().numpy() for name in ("rewards", "dones"))
        ends = (dones + episode["truncated"].cpu().numpy()) > 0
        told = torch.from_numpy(returns_to_go(rewards, ends, dones > 0, self.gamma)).to(episode["rewards"])
        return {**episode, "returns_to_go": told}

    def state_dict(self) -> dict[str, Any]:
        waiting = {str(env): _joined(rows) for env, rows in enumerate(self.waiting) if rows}
        return {
            "step": self.step, "actor": self.actor.state_dict(), "source": self.mixed.state_dict(), "waiting": waiting
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        self.step = state["step"]
        self.mixed.load_state_dict(state["source"])
        for env, rows in state["waiting"].items():
            rows = {name: column.to(self.actor.device) for name, column in rows.items()}
            self.waiting[int(env)] = [{name: c[i : i + 1] for name, c in rows.items()} for i in range(len(rows["obs"]))]
        reasons = self.actor.load_state_dict(state["actor"])
        if reasons:  # the environments start anew, and so do their episodes
            self.waiting = [[] for _ in self.waiting]
        return reasons


def _joined(rows: list[Batch]) -> Batch:
    return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}
