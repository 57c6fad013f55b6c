"""n-step returns of a dataset."""

import torch
from torch import Tensor

from rl_training.data.replay.replay_buffer import n_step_returns
from rl_training.types import Batch

LAST = ("next_obs", "next_actions", "dones", "truncated")  # columns of the last row that a return counts


def with_n_step_returns(columns: Batch, ends: Tensor, n_step: int, gamma: float) -> Batch:
    """Replaces rewards by n-step returns within episodes; `ends` flags the last rows of episodes.

    next_obs, dones and truncated become those of the last row counted, and `discounts` that of its next value.
    """
    if n_step < 1:
        raise ValueError(f"n_step must be at least 1, got {n_step}")
    rows = torch.arange(len(ends), device=ends.device)
    window = (rows.unsqueeze(1) + torch.arange(n_step, device=ends.device)).clamp(max=len(ends) - 1)
    discounts = columns["discounts"][window] if "discounts" in columns else gamma
    returns, last, discounts = n_step_returns(columns["rewards"][window], ends[window], discounts)
    final = {name: columns[name].index_select(0, rows + last) for name in LAST if name in columns}
    return {**columns, **final, "rewards": returns, "discounts": discounts}
