"""Behaviour cloning by hand: a standard normal policy, and choices of known probabilities."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from rl_training.algorithms import BCAlgorithm, Updater, bc_loss
from rl_training.data import TransitionDataset
from rl_training.models.heads import Categorical, Gaussian, MultiCategorical
from rl_training.types import EnvSpec

STANDARD = Gaussian(torch.zeros(2, 2), torch.zeros(2, 2))
ACTIONS = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
LEVERS = EnvSpec((3,), "multi_discrete", 2, action_shape=(2,), action_sizes=(3, 2), action_starts=(0, 0))


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


HALF, QUARTER, TENTH = math.log(2), math.log(4), math.log(10)
# Choices of three and of two actions; rows of probabilities 1/2, 1/4, 1/4 and 9/10, 1/10.
BOTH = MultiCategorical(
    (
        Categorical(torch.tensor([[1 / 2, 1 / 4, 1 / 4], [1 / 4, 1 / 4, 1 / 2]]).log()),
        Categorical(torch.tensor([[9 / 10, 1 / 10], [1 / 2, 1 / 2]]).log()),
    )
)


def test_the_likelihood_of_several_choices_is_the_sum_of_their_log_probabilities():
    # 1/2 and 1/10 in the first row, 1/4 and 1/2 in the second
    loss = bc_loss(BOTH, torch.tensor([[0, 1], [1, 0]])).total.item()
    assert loss == pytest.approx((HALF + TENTH + QUARTER + HALF) / 2)


def test_each_choice_is_compared_with_its_own_column():
    # 1/4 and 9/10 in the first row; in the order of the columns reversed it would be 1/2 and 1/10
    loss = bc_loss(BOTH, torch.tensor([[1, 0], [1, 0]])).total.item()
    assert loss == pytest.approx((QUARTER - math.log(0.9) + QUARTER + HALF) / 2)


def test_the_entropy_of_several_choices_is_the_sum_of_their_entropies():
    first = 0.5 * HALF + 0.5 * QUARTER + 0.1 * TENTH - 0.9 * math.log(0.9)
    second = 0.5 * HALF + 0.5 * QUARTER + HALF
    entropy = bc_loss(BOTH, torch.tensor([[0, 0], [0, 0]])).metrics["entropy"].item()
    assert entropy == pytest.approx((first + second) / 2)


def test_the_logits_of_the_choices_follow_one_another_in_the_output_of_one_network():
    learner = BCAlgorithm.build(LEVERS, hidden_sizes=(8,))
    obs, actions = torch.randn(6, 3), torch.tensor([[0, 1], [2, 0], [1, 1], [0, 0], [2, 1], [1, 0]])
    logits = learner.model.actor.net(obs)
    assert logits.shape == (6, 5)
    expected = cross_entropy(logits[:, :3], actions[:, 0]) + cross_entropy(logits[:, 3:], actions[:, 1])
    torch.testing.assert_close(learner.loss({"obs": obs, "actions": actions}).total, expected)


def test_several_choices_have_no_squared_error():
    with pytest.raises(ValueError, match="objective 'mse' needs Box actions"):
        BCAlgorithm.build(LEVERS, objective="mse")


def test_bc_learns_both_choices_of_logged_actions_and_not_the_other_way_round():
    """Logs of a policy that reads the first choice from one number and the second from another, one time in ten not."""
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(4_000, 3)).astype(np.float32)
    right = np.stack([(obs[:, 0] > -0.5).astype(int) + (obs[:, 0] > 0.5), (obs[:, 1] > 0).astype(int)], 1)
    noise = rng.integers([3, 2], size=right.shape)
    actions = np.where(rng.random(right.shape) < 0.1, noise, right)
    zeros = np.zeros(len(obs), np.float32)
    rows = {"obs": obs, "actions": actions, "rewards": zeros, "next_obs": obs, "dones": zeros}
    dataset = TransitionDataset.from_dict({**rows, "truncated": zeros + 1})
    dataset.seed(0)
    torch.manual_seed(0)
    learner = BCAlgorithm.build(dataset.spec, hidden_sizes=(64,), learning_rate=0.01, batch_size=128)
    Updater([learner]).run(dataset, 400)
    chosen = learner.act(torch.from_numpy(obs), deterministic=True).actions.numpy()
    assert ((chosen == right).mean(0) > 0.95).all()  # one choice by chance: 0.38 and 0.5
