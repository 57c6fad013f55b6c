"""Observation normalisation, stored with the policy."""

import torch
from torch import Tensor, nn


class Normalizer(nn.Module):
    """Standardises observations. Call `fit` once on a dataset, or `merge` after every rollout."""

    mean: Tensor
    std: Tensor
    count: Tensor

    def __init__(self, obs_shape: tuple[int, ...], *, clip: float | None = None) -> None:
        super().__init__()
        self.clip = clip
        self.register_buffer("mean", torch.zeros(obs_shape))
        self.register_buffer("std", torch.ones(obs_shape))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, obs: Tensor) -> Tensor:
        scaled = (obs - self.mean) / self.std
        return scaled if self.clip is None else scaled.clamp(-self.clip, self.clip)

    @torch.no_grad()
    def fit(self, rows: Tensor) -> None:
        self.mean.copy_(rows.mean(0))
        self.std.copy_(rows.std(0, unbiased=False) + 1e-3)  # as in TD3+BC and CORL, for constant columns
        self.count.fill_(len(rows))

    @torch.no_grad()
    def merge(self, rows: Tensor) -> None:
        """Updates the running mean and std (Chan, Golub & LeVeque, 1983)."""
        new, total = len(rows), self.count + len(rows)
        shift = rows.mean(0) - self.mean
        squares = self.std.square() * self.count + rows.var(0, unbiased=False) * new
        squares = squares + shift.square() * self.count * new / total
        self.mean.add_(shift * new / total)
        self.std.copy_((squares / total).clamp_min(1e-8).sqrt())
        self.count.copy_(total)
