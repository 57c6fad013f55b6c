"""Rewards of about unit size, whatever an environment pays (Engstrom et al., 2020)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rl_training.data.replay.rollout_buffer import decayed_sums
from rl_training.models import Normalizer

CLIP = 10.0


class RewardScale(nn.Module):
    """Divides rewards by the running deviation of their discounted sums; none changes its sign.

    A sum begins with its episode, and goes on from rollout to rollout. A rollout is taken into the statistics first,
    so that all of its rewards are of one scale.
    """

    sums: Tensor  # [envs], of the running episodes

    def __init__(self, num_envs: int, gamma: float) -> None:
        super().__init__()
        self.gamma, self.statistics = gamma, Normalizer(())
        self.register_buffer("sums", torch.zeros(num_envs))

    @torch.no_grad()
    def forward(self, rewards: Tensor, ends: Tensor) -> Tensor:
        """Of [time, envs]; `ends` is 1 for the last steps of episodes, by a time limit too."""
        steps, decay = rewards.clone(), torch.zeros_like(rewards)
        steps[0] += self.gamma * self.sums
        decay[1:] = self.gamma * (1 - ends[:-1])
        sums = decayed_sums(steps.flip(0), decay.flip(0)).flip(0)
        self.statistics.merge(sums.flatten())
        self.sums.copy_(sums[-1] * (1 - ends[-1]))
        return (rewards / self.statistics.std).clamp(-CLIP, CLIP)
