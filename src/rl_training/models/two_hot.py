"""Two-hot regression of DreamerV3 (Hafner et al., 2023, arXiv:2301.04104): scalars as distributions over bins."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rl_training.models.normed import LAYERS_2024, LayerFactory
from rl_training.models.products import with_full_outputs

BINS, REACH = 255, 20.0  # number of bins, and their largest symlog value
EQUAL = 1e-3  # relative difference up to which the probabilities of a bin and its negative count as equal


def symlog(x: Tensor) -> Tensor:
    return x.sign() * x.abs().log1p()


def symexp(x: Tensor) -> Tensor:
    return x.sign() * x.abs().expm1()


def mirrored_bins(*, symlog_spaced: bool) -> Tensor:
    """Bins that are exactly symmetric around 0: symexp of a uniform grid, or the uniform grid itself."""
    half = torch.linspace(-REACH, 0, BINS // 2 + 1)
    half = half if symlog_spaced else symexp(half)
    return torch.cat([half, -half[:-1].flip(0)])


def two_hot(values: Tensor, bins: Tensor) -> tuple[Tensor, Tensor]:
    """Indices of the two nearest bins [..., 2] and their interpolation weights; values are clipped to the bins."""
    values = values.clamp(bins[0], bins[-1]).contiguous()
    below = (torch.searchsorted(bins, values, right=True) - 1).clamp(0, len(bins) - 2)
    low, high = bins[below], bins[below + 1]
    weight = (values - low) / (high - low)
    return torch.stack([below, below + 1], -1), torch.stack([1 - weight, weight], -1)


class TwoHot(NamedTuple):
    """Distribution over bins of values, or with `squashed` of their symlog."""

    logits: Tensor  # [..., bins]
    bins: Tensor
    squashed: bool = False

    def mean(self) -> Tensor:
        """Mean, where bins whose probability equals that of their negative count as 0."""
        # The outer bins reach 5e8, so rounding of equal probabilities would otherwise dominate the mean.
        probabilities, middle = self.logits.softmax(-1), len(self.bins) // 2
        below, above = probabilities[..., :middle].flip(-1), probabilities[..., middle + 1 :]
        excess = above - below
        excess = torch.where(excess.abs() > EQUAL * (above + below), excess, 0.0)
        mean = (excess * self.bins[middle + 1 :]).sum(-1)
        return symexp(mean) if self.squashed else mean

    def loss(self, values: Tensor) -> Tensor:
        """Cross-entropy -sum w_i * log p_i, with w the two-hot weights of the (detached) values."""
        indices, weights = two_hot((symlog(values) if self.squashed else values).detach(), self.bins)
        return -(weights * self.logits.log_softmax(-1).gather(-1, indices)).sum(-1)


class TwoHotHead(nn.Module):
    """Maps features to a `TwoHot`, whose initial mean is exactly 0."""

    bins: Tensor

    def __init__(
        self, features: int, hidden_sizes: Sequence[int], *, squashed: bool, activation: type[nn.Module] = nn.SiLU,
        make: LayerFactory = LAYERS_2024,
    ) -> None:  # fmt: skip
        super().__init__()
        self.squashed = squashed
        self.net = make.mlp((features, *hidden_sizes, BINS), scale=0.0, activation=activation)
        self.register_buffer("bins", mirrored_bins(symlog_spaced=squashed))

    def forward(self, features: Tensor) -> TwoHot:
        return TwoHot(with_full_outputs(self.net, features), self.bins, self.squashed)
