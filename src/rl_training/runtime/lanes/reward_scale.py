"""Reward normalisation by the running standard deviation of discounted returns (Engstrom et al., 2020)."""

import torch
from torch import Tensor, nn

from rl_training.data.replay.rollout_buffer import decayed_sums
from rl_training.models import Normalizer
from rl_training.models.return_scale import ReturnStatistics

CLIP = 10.0


class DiscountedReturns:
    """Discounted reward sums of running episodes, which are added to statistics after every step."""

    def __init__(self, statistics: ReturnStatistics, sums: Tensor) -> None:
        self.statistics, self.sums = statistics, sums  # both change in place, so that CUDA graphs can write them

    @torch.no_grad()
    def add(self, rewards: Tensor, ends: Tensor) -> None:
        """Adds the rewards [*population, envs] of a step; `ends` is 1 where an episode terminated or was truncated."""
        self.sums.mul_(self.statistics.gamma).add_(rewards)
        self.statistics.merge(self.sums)
        self.sums.mul_(1 - ends)


class RewardScale(nn.Module):
    """Divides rewards by the running standard deviation of their discounted sums, without centring them.

    Sums restart with each episode and continue across rollouts. The statistics include a rollout before they scale it.
    """

    sums: Tensor  # [envs], discounted reward sums of the current episodes

    def __init__(self, num_envs: int, gamma: float) -> None:
        super().__init__()
        self.gamma, self.statistics = gamma, Normalizer(())
        self.register_buffer("sums", torch.zeros(num_envs))

    @torch.no_grad()
    def forward(self, rewards: Tensor, ends: Tensor) -> Tensor:
        """Scales rewards [time, envs]; `ends` is 1 where an episode terminated or was truncated."""
        steps, decay = rewards.clone(), torch.zeros_like(rewards)
        steps[0] += self.gamma * self.sums
        decay[1:] = self.gamma * (1 - ends[:-1])
        sums = decayed_sums(steps.flip(0), decay.flip(0)).flip(0)
        self.statistics.merge(sums.flatten())
        self.sums.copy_(sums[-1] * (1 - ends[-1]))
        return (rewards / self.statistics.std).clamp(-CLIP, CLIP)
