"""Rewards are divided by the deviation of their discounted sums, as the references do step by step."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rl_training.runtime.lanes.rollout_reward_scale import RolloutRewardScale


# gamma 0.5. One environment: sums 2, 0.5 * 2 + 1 = 2, then an end, then 4. Mean 8/3, squares 4 + 4 + 16 = 24.
def test_a_rollout_by_hand():
    scale = RolloutRewardScale(1, gamma=0.5)
    scaled = scale(torch.tensor([[2.0], [1.0], [4.0]]), torch.tensor([[0.0], [1.0], [0.0]]))
    deviation = (24 / 3 - (8 / 3) ** 2) ** 0.5
    assert scaled.flatten().tolist() == pytest.approx([2 / deviation, 1 / deviation, 4 / deviation])
    assert scale.sums.tolist() == [4.0]  # goes on in the next rollout
    scale(torch.tensor([[0.0]]), torch.tensor([[1.0]]))
    assert scale.sums.tolist() == [0.0]
    assert scale.statistics.mean.item() == pytest.approx((2 + 2 + 4 + 2) / 4)


def test_rollouts_give_the_statistics_that_the_references_keep_step_by_step():
    generator = np.random.default_rng(0)
    rewards = generator.normal(3, 2, (6, 5, 4)).astype(np.float32)  # six rollouts of five steps of four environments
    ends = (generator.random((6, 5, 4)) < 0.2).astype(np.float32)
    scale, running, seen = RolloutRewardScale(4, gamma=0.9), np.zeros(4), []
    for paid, over in zip(rewards, ends, strict=True):
        scaled = scale(torch.from_numpy(paid), torch.from_numpy(over))
        for reward, end in zip(paid, over, strict=True):
            running = 0.9 * running + reward
            seen.append(running)
            running = running * (1 - end)
        np.testing.assert_allclose(scaled.numpy(), paid / np.std(seen), rtol=1e-4)
    np.testing.assert_allclose(scale.sums.numpy(), running, rtol=1e-4)
    assert scale.statistics.mean.item() == pytest.approx(np.mean(seen), rel=1e-4)


def test_rare_large_rewards_are_clipped_and_keep_their_sign():
    rewards = torch.zeros(1000, 1)
    rewards[500], rewards[700] = 50.0, -50.0
    scaled = RolloutRewardScale(1, gamma=0.0)(rewards, torch.zeros(1000, 1))
    assert scaled[[0, 500, 700]].flatten().tolist() == [0, 10, -10]  # 50 is 22 deviations


def test_where_nothing_is_paid_nothing_breaks():
    assert RolloutRewardScale(2, gamma=0.99)(torch.zeros(3, 2), torch.zeros(3, 2)).tolist() == [[0, 0]] * 3
