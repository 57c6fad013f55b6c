"""Reward normalisation of rollouts by the running standard deviation of discounted returns (Engstrom et al., 2020).

Replay buffers store plain rewards, which `models.replay_reward_scale` scales in each batch.
"""

import torch
from torch import Tensor, nn

from rl_training.data.replay.rollout_buffer import decayed_sums
from rl_training.models import Normalizer

CLIP = 10.0


class RolloutRewardScale(nn.Module):
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
