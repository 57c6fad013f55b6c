"""Numbers of any size as a distribution over fixed bins (Hafner et al., 2023), of which the mean is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rl_training.models.normed import normed_mlp

BINS, REACH = 255, 20.0  # how many, and how far they go on either side after symlog


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
        """Bins are added to their negatives first, so that even logits give exactly 0."""
        parts, middle = self.logits.softmax(-1) * self.bins, len(self.bins) // 2
        pairs = parts[..., :middle] + parts[..., middle + 1 :].flip(-1)
        mean = pairs.sum(-1) + parts[..., middle]
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
        return TwoHot(self.net(features).float(), self.bins, self.squashed)
