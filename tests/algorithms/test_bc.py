"""Behaviour cloning by hand: a policy whose mean is zero and whose deviation is one."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from rl_training.algorithms import BCAlgorithm, bc_loss
from rl_training.models.heads import Gaussian

STANDARD = Gaussian(torch.zeros(2, 2), torch.zeros(2, 2))
ACTIONS = torch.tensor([[0.0, 0.0], [1.0, 0.0]])


def test_likelihood_is_the_mean_negative_log_density():
    # two dimensions of log sqrt(2 pi) each, and 1^2 / 2 in the second row
    expected = (math.log(2 * math.pi) + math.log(2 * math.pi) + 0.5) / 2
    assert bc_loss(STANDARD, ACTIONS).total.item() == pytest.approx(expected)


def test_mse_is_the_mean_over_rows_and_dimensions():
    assert bc_loss(STANDARD, ACTIONS, "mse").total.item() == 0.25


def test_discrete_likelihood_is_cross_entropy(discrete, draw):
    learner, rows = BCAlgorithm.build(discrete, hidden_sizes=(8,)), draw(discrete, 12)
    logits = learner.model.actor(rows["obs"]).logits
    torch.testing.assert_close(learner.loss(rows).total, cross_entropy(logits, rows["actions"]))


@pytest.mark.parametrize("objective", ["likelihood", "mse"])
def test_the_option_chooses_the_objective(objective, box, draw):
    learner, rows = BCAlgorithm.build(box, hidden_sizes=(8,), objective=objective), draw(box, 5)
    mean = learner.model.actor.net(rows["obs"]).tanh()
    squared = (mean - rows["actions"]).square()
    likelihood = (0.5 * squared).sum(-1).mean() + math.log(2 * math.pi)  # two dimensions, deviation one
    torch.testing.assert_close(learner.loss(rows).total, squared.mean() if objective == "mse" else likelihood)


def test_only_obs_and_actions_matter(box, draw):
    learner, rows = BCAlgorithm.build(box, hidden_sizes=(8,)), draw(box, 5)
    assert torch.equal(learner.loss({k: rows[k] for k in ("obs", "actions")}).total, learner.loss(rows).total)


def test_discrete_actions_have_no_squared_error(discrete):
    with pytest.raises(ValueError, match="objective 'mse' needs Box actions"):
        BCAlgorithm.build(discrete, objective="mse")
