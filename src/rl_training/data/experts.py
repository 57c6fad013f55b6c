"""Batches of a policy's rows and an expert's, for who must tell them apart."""

from __future__ import annotations

import torch

from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.sampling import RandomRows, gather
from rl_training.types import Batch


class PolicyAndExpert(RandomRows):
    """As many rows of either in a batch: `obs` and `actions` are the policy's, `expert_obs` and so on the expert's."""

    draws_on_device = False  # the policy's rows are others after every rollout

    def __init__(self, experts: TransitionDataset) -> None:
        super().__init__(experts.generator.device)
        self.experts, self.policy = experts, dict[str, torch.Tensor]()
        experts.generator = self.generator  # one stream for both, so that one state restores them

    def sample(self, batch_size: int, members: tuple[int, ...] = ()) -> Batch:
        if members:
            raise ValueError(f"a rollout belongs to one learner, got members={members}")
        count, device = len(self.policy["obs"]), self.generator.device
        rows = torch.randint(count, (batch_size,), generator=self.generator, device=device)
        return {**gather(self.policy, rows), **self.expert_rows(batch_size)}

    def expert_rows(self, count: int) -> Batch:
        drawn = self.experts.sample(count)
        return {f"expert_{name}": drawn[name] for name in ("obs", "actions")}
