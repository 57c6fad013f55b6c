"""Batches of a policy's rows and an expert's, for who must tell them apart; and the state that follows an end."""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.data.sampling import SeededSampler, gather
from rl_training.types import Batch


class ImitationBatches(SeededSampler):
    """As many rows of either in a batch: `obs` and `actions` are the policy's, `expert_obs` and so on the expert's."""

    samples_on_device = False  # the policy's rows are others after every rollout

    def __init__(self, experts: Batch) -> None:
        super().__init__(experts["obs"].device)
        self.experts, self.policy = experts, dict[str, Tensor]()

    def sample(self, batch_size: int, members: tuple[int, ...] = ()) -> Batch:
        if members:
            raise ValueError(f"a rollout belongs to one learner, got members={members}")
        return {**self._drawn(self.policy, batch_size), **self.expert_rows(batch_size)}

    def expert_rows(self, count: int) -> Batch:
        return {f"expert_{name}": column for name, column in self._drawn(self.experts, count).items()}

    def _drawn(self, columns: Batch, count: int) -> Batch:
        most, device = len(columns["obs"]), self.generator.device
        return gather(columns, torch.randint(most, (count,), generator=self.generator, device=device))


def append_flag(obs: Tensor) -> Tensor:
    """Observations [rows, numbers] with a last number that tells them from the absorbing state: 0."""
    return torch.cat([obs, torch.zeros_like(obs[:, :1])], -1)


def absorbing_rows(rows: Batch, count: int) -> Batch:
    """The state that every terminal end leads to, `count` times: all zeros but for its last number; nothing is done."""
    obs = rows["obs"].new_zeros(count, rows["obs"].shape[1] + 1)
    obs[:, -1] = 1
    return {"obs": obs, "actions": rows["actions"].new_zeros(count, *rows["actions"].shape[1:])}


def add_absorbing_rows(rows: Batch, ends: int, *, weight: float = 1.0) -> Batch:
    """These obs and actions, and the absorbing state for each of so many ends; each of those counts for `weight`."""
    after, ones = absorbing_rows(rows, ends), rows["obs"].new_ones(len(rows["obs"]))
    return {
        "obs": torch.cat([append_flag(rows["obs"]), after["obs"]]),
        "actions": torch.cat([rows["actions"], after["actions"]]),
        "weights": torch.cat([ones, ones.new_full((ends,), weight)]),
    }
