"""Numbers of any size as a distribution over fixed bins (Hafner et al., 2023), of which the mean is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rl_training.models.normed import normed_mlp

BINS, REACH = 255, 20.0  # how many, and how far they go on either side after symlog
EVEN = 1e-3  # share of a bin and its negative by which they may differ and still be even


def symlog(x: Tensor) -> Tensor:
    return x.sign() * x.abs().log1p()


def symexp(x: Tensor) -> Tensor:
    return x.sign() * x.abs().expm1()


def mirrored_bins(*, symlog_spaced: bool) -> Tensor:
    """Bins around an exact 0, each with its exact negative: symexp of an even grid, or the even grid itself."""
    half = torch.linspace(-REACH, 0, BINS // 2 + 1)
    half = half if symlog_spaced else symexp(half)
    return torch.cat([half, -half[:-1].flip(0)])


def two_hot(values: Tensor, bins: Tensor) -> tuple[Tensor, Tensor]:
    """Of each value the two bins beside it [..., 2], and their weights by nearness; beyond the ends it is the end."""
    values = values.clamp(bins[0], bins[-1]).contiguous()
    below = (torch.searchsorted(bins, values, right=True) - 1).clamp(0, len(bins) - 2)
    low, high = bins[below], bins[below + 1]
    share = (values - low) / (high - low)
    return torch.stack([below, below + 1], -1), torch.stack([1 - share, share], -1)


class TwoHot(NamedTuple):
    """A distribution over bins: of values, or where `squashed` of their symlog."""

    logits: Tensor  # [..., bins]
    bins: Tensor
    squashed: bool = False

    def mean(self) -> Tensor:
        """Each bin is held against its negative, and what is even counts as 0: the farthest are so far away that the
        rounding of chances which nothing has told apart would else outweigh all the rest."""
        chances, middle = self.logits.softmax(-1), len(self.bins) // 2
        below, above = chances[..., :middle].flip(-1), chances[..., middle + 1 :]
        excess = above - below
        excess = torch.where(excess.abs() > EVEN * (above + below), excess, 0.0)
        mean = (excess * self.bins[middle + 1 :]).sum(-1)
        return symexp(mean) if self.squashed else mean

    def loss(self, values: Tensor) -> Tensor:
        """Cross-entropy to the two-hot weights of these values, which get no gradient."""
        beside, weights = two_hot((symlog(values) if self.squashed else values).detach(), self.bins)
        return -(weights * self.logits.log_softmax(-1).gather(-1, beside)).sum(-1)


class TwoHotHead(nn.Module):
    """Features to a TwoHot, which says exactly 0 before it has learned anything."""

    bins: Tensor

    def __init__(self, features: int, hidden_sizes: Sequence[int], *, squashed: bool) -> None:
        super().__init__()
        self.squashed = squashed
        self.net = normed_mlp((features, *hidden_sizes, BINS), scale=0.0)
        self.register_buffer("bins", mirrored_bins(symlog_spaced=squashed))

    def forward(self, features: Tensor) -> TwoHot:
        hidden, last = self.net[:-1](features), self.net[-1]
        with torch.autocast(features.device.type, enabled=False):  # as exact as the cross-entropy wants it
            return TwoHot(last(hidden.float()), self.bins, self.squashed)
