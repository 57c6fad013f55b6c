"""QR-DQN: the loss by hand and by a loop, and what it settles at."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch.nn.functional import huber_loss

from rl_training.algorithms import QRDQNAlgorithm, QRDQNConfig, quantile_huber_loss
from rl_training.types import EnvSpec


def test_errors_above_weigh_the_fraction_and_those_below_the_rest():
    errors = torch.tensor([[[3.0, -0.5]]])  # one quantile, two targets
    # Huber: 3 - 0.5 in the linear part, 0.5^2 / 2 in the square one; the mean over targets
    expected = (0.9 * 2.5 + 0.1 * 0.125) / 2
    assert quantile_huber_loss(errors, torch.tensor([0.9]), 1.0).tolist() == [pytest.approx(expected)]


def test_the_threshold_scales_the_square_part():
    loss = quantile_huber_loss(torch.tensor([[[3.0]]]), torch.tensor([0.5]), 2.0)
    assert loss.item() == pytest.approx(0.5 * 2 * (3 - 1) / 2)  # 0.5 * kappa (3 - kappa / 2) / kappa


@pytest.mark.parametrize("kappa", [1.0, 0.5])
def test_it_and_its_gradient_equal_a_loop_over_pairs(kappa):
    quantiles, targets, fractions = torch.randn(3, 4, requires_grad=True), 2 * torch.randn(3, 5), torch.rand(3, 4)
    found = quantile_huber_loss(targets.unsqueeze(-2) - quantiles.unsqueeze(-1), fractions, kappa)
    expected = torch.zeros(3)
    for row, column, number in product(range(3), range(4), range(5)):
        quantile, target, fraction = quantiles[row, column], targets[row, number], fractions[row, column]
        weight = fraction if target >= quantile else 1 - fraction
        expected[row] += weight * huber_loss(quantile, target, delta=kappa) / kappa / 5
    torch.testing.assert_close(found, expected)
    slopes = [torch.autograd.grad(loss.sum(), quantiles)[0] for loss in (found, expected)]
    torch.testing.assert_close(*slopes)


def test_a_median_pays_half_of_huber():
    errors = torch.randn(6, 1, 7)
    expected = huber_loss(errors, torch.zeros_like(errors), reduction="none").mean((-2, -1)) / 2
    torch.testing.assert_close(quantile_huber_loss(errors, torch.tensor([0.5]), 1.0), expected)


def test_it_settles_at_the_quantiles_of_what_it_is_shown():
    fractions, quantiles = torch.tensor([0.1, 0.5, 0.9]), torch.zeros(1, 3, requires_grad=True)
    targets = torch.linspace(0, 1, 201).unsqueeze(0)  # as good as every number between 0 and 1
    optimizer = torch.optim.Adam([quantiles], lr=0.01)
    for _ in range(400):
        optimizer.zero_grad()
        errors = targets.unsqueeze(-2) - quantiles.unsqueeze(-1)
        quantile_huber_loss(errors, fractions, 0.01).sum().backward()
        optimizer.step()
    torch.testing.assert_close(quantiles[0].detach(), fractions, atol=0.01, rtol=0)


def one_state() -> QRDQNAlgorithm:
    """Two actions with two quantiles each: 1 and 3; 0 and 6."""
    learner = QRDQNAlgorithm.build(EnvSpec((1,), "discrete", 2), hidden_sizes=(), num_quantiles=2, gamma=0.5)
    for network in (learner.model.q, learner.target["q"]):
        table = torch.tensor([[1.0], [3.0], [0.0], [6.0]])
        layer = "head.advantage.layers.0"  # the only one
        network.load_state_dict({f"{layer}.weight": table, f"{layer}.bias": torch.zeros(4)})
    return learner


STEP = {"obs": torch.ones(1, 1), "next_obs": torch.ones(1, 1), "actions": torch.tensor([0]),
        "rewards": torch.tensor([1.0]), "dones": torch.zeros(1)}  # fmt: skip


def test_targets_are_all_quantiles_of_the_action_with_the_best_mean():
    learner = one_state()
    assert learner.loss_target(STEP).tolist() == [[1.0, 4.0]]  # 1 + 0.5 * 0 and 1 + 0.5 * 6, of means 2 and 3
    assert learner.loss_target({**STEP, "dones": torch.ones(1)}).tolist() == [[1.0, 1.0]]


def test_the_loss_of_a_step_by_hand():
    loss = one_state().loss(STEP)
    # quantiles 1 (at 1/4) and 3 (at 3/4) to targets 1 and 4: errors 0, 3 and -2, 1
    expected = (0.25 * 2.5) / 2 + (0.25 * 1.5 + 0.75 * 0.5) / 2
    assert loss.total.item() == pytest.approx(expected)
    assert loss.rows["priorities"].tolist() == [pytest.approx((0 + 3 + 2 + 1) / 4)]
    assert (loss.metrics["q_value_mean"].item(), loss.metrics["target_q_mean"].item()) == (2.0, 2.5)


def test_acting_goes_by_the_mean():
    assert one_state().act(torch.ones(3, 1), deterministic=True).actions.tolist() == [1, 1, 1]


@pytest.mark.parametrize(("option", "value"), [("kappa", 0), ("num_quantiles", 0)])
def test_bad_options_are_refused_by_name(option, value):
    with pytest.raises(ValueError, match=option):
        QRDQNConfig(**{option: value})
