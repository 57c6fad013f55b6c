"""Formulas that several algorithms share, by hand."""

from __future__ import annotations

import pytest
import torch

from rl_training.algorithms.core.ops import ensemble_squared_error, expectile_loss, select_action, td_target


def test_a_target_is_the_reward_and_what_follows_unless_the_episode_terminated():
    rewards, dones, values = torch.tensor([1.0, 1.0]), torch.tensor([0.0, 1.0]), torch.tensor([10.0, 10.0])
    assert td_target(rewards, dones, values, 0.9).tolist() == [10.0, 1.0]


def test_ensemble_error_is_a_mean_over_rows_and_a_sum_over_copies():
    predictions = torch.tensor([[1.0, 2.0], [0.0, 0.0]])
    error = ensemble_squared_error(predictions, torch.tensor([0.0, 4.0]))
    assert error.item() == (1 + 4) / 2 + (0 + 16) / 2


def test_select_action_takes_the_entry_of_each_action():
    values = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert select_action(values, torch.tensor([2, 0])).tolist() == [3.0, 4.0]


def test_expectile_loss_weighs_underestimates_more():
    error = torch.tensor([2.0, -1.0])  # one above the estimate, one below
    assert expectile_loss(error, 0.9).item() == pytest.approx((0.9 * 4 + 0.1 * 1) / 2)


def test_the_half_expectile_is_half_the_squared_error():
    error = torch.randn(9)
    torch.testing.assert_close(expectile_loss(error, 0.5), 0.5 * error.square().mean())


def test_an_expectile_near_one_is_least_near_the_largest_value():
    # where 0.99 (10 - v) = 0.01 (v - 0) + 0.01 (v - 1)
    estimate = torch.tensor((9.9 + 0.01) / 1.01, requires_grad=True)
    loss = expectile_loss(torch.tensor([0.0, 1.0, 10.0]) - estimate, 0.99)
    (slope,) = torch.autograd.grad(loss, estimate)
    assert estimate.item() > 9.8
    assert slope.item() == pytest.approx(0, abs=1e-5)
