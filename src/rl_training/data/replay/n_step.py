"""Returns of several steps (Sutton, 1988), cut where an episode ends."""

from __future__ import annotations

import torch
from torch import Tensor


def n_step_returns(rewards: Tensor, ended: Tensor, gamma: float) -> tuple[Tensor, Tensor, Tensor]:
    """Of windows [..., steps]: sums up to the first end, the last step in each, and the discount of what follows it.

    What lies beyond an end may be anything, even no number.
    """
    steps = rewards.shape[-1]
    powers = gamma ** torch.arange(steps + 1, device=rewards.device)
    over = ended.cumsum(-1) - ended.long() > 0  # an end has come before
    last = steps - 1 - over.sum(-1)
    returns = (rewards * powers[:-1]).masked_fill(over, 0).sum(-1)
    return returns, last, powers.take(last + 1)
