"""n-step returns (Sutton, 1988), truncated at the end of an episode."""

import torch
from torch import Tensor


def n_step_returns(rewards: Tensor, ended: Tensor, gamma: float) -> tuple[Tensor, Tensor, Tensor]:
    """n-step returns sum_k gamma^k r_k over windows [..., steps], up to the first step that ended.

    Also returns the index of the last step counted, and gamma^(steps counted), the discount of the next value.
    Rewards after an end are ignored, even NaN.
    """
    steps = rewards.shape[-1]
    powers = gamma ** torch.arange(steps + 1, device=rewards.device)
    after_end = ended.cumsum(-1) - ended.long() > 0
    last = steps - 1 - after_end.sum(-1)
    returns = (rewards * powers[:-1]).masked_fill(after_end, 0).sum(-1)
    return returns, last, powers.take(last + 1)
