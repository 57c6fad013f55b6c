"""Batches of policy and expert rows for a discriminator, and absorbing states."""

import torch
from torch import Tensor

from rl_training.data.sampling import SeededSampler, gather
from rl_training.types import Batch


class ImitationBatches(SeededSampler):
    """Samples equally many policy rows (`obs`, `actions`) and expert rows (`expert_obs`, `expert_actions`)."""

    samples_on_device = False  # every rollout replaces the policy's rows

    def __init__(self, experts: Batch) -> None:
        super().__init__(experts["obs"].device)
        self.experts, self.policy = experts, dict[str, Tensor]()

    def sample(self, batch_size: int, members: tuple[int, ...] = ()) -> Batch:
        if members:
            raise ValueError(f"a rollout serves one learner, got members={members}")
        return {**self._sample(self.policy, batch_size), **self.expert_rows(batch_size)}

    def expert_rows(self, count: int) -> Batch:
        return {f"expert_{name}": column for name, column in self._sample(self.experts, count).items()}

    def _sample(self, columns: Batch, count: int) -> Batch:
        rows, device = len(columns["obs"]), self.generator.device
        return gather(columns, torch.randint(rows, (count,), generator=self.generator, device=device))


def append_flag(obs: Tensor) -> Tensor:
    """Appends the absorbing flag 0 to observations [rows, dimensions]."""
    return torch.cat([obs, torch.zeros_like(obs[:, :1])], -1)


def absorbing_rows(rows: Batch, count: int) -> Batch:
    """`count` absorbing states: zero observations with the absorbing flag 1, and zero actions."""
    obs = rows["obs"].new_zeros(count, rows["obs"].shape[1] + 1)
    obs[:, -1] = 1
    return {"obs": obs, "actions": rows["actions"].new_zeros(count, *rows["actions"].shape[1:])}


def add_absorbing_rows(rows: Batch, ends: int, *, weight: float = 1.0) -> Batch:
    """Appends one absorbing row of this `weight` for each of `ends` terminal states."""
    after, ones = absorbing_rows(rows, ends), rows["obs"].new_ones(len(rows["obs"]))
    obs, actions = torch.cat([append_flag(rows["obs"]), after["obs"]]), torch.cat([rows["actions"], after["actions"]])
    return {"obs": obs, "actions": actions, "weights": torch.cat([ones, ones.new_full((ends,), weight)])}
