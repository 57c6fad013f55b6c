"""C51: the projection against hand-worked numbers and an index form, and targets of two states."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from rl_training.algorithms import C51Algorithm, C51Config, categorical_divergence, project_atoms
from rl_training.types import EnvSpec

LAYER = "head.advantage.layers.0"  # the only one, without hidden layers
SUPPORT = torch.tensor([0.0, 1.0, 2.0])


def test_a_return_between_two_atoms_is_shared_by_nearness():
    found = project_atoms(torch.tensor([[1.0]]), torch.tensor([[0.25]]), SUPPORT)
    assert found.tolist() == [[0.75, 0.25, 0.0]]


def test_a_return_on_an_atom_stays_there_and_one_beyond_the_ends_goes_to_the_end():
    probabilities, returns = torch.tensor([[0.5, 0.125, 0.375]]), torch.tensor([[1.0, -3.0, 9.0]])
    assert project_atoms(probabilities, returns, SUPPORT).tolist() == [[0.125, 0.5, 0.375]]


def projected_by_index(probabilities: Tensor, returns: Tensor, support: Tensor) -> Tensor:
    """The form of the paper: one return after another, to the atoms below and above it."""
    found, last = torch.zeros(len(returns), len(support)), len(support) - 1
    for row in range(len(returns)):
        for probability, value in zip(probabilities[row].tolist(), returns[row].tolist(), strict=True):
            place = (value - support[0].item()) / (support[-1] - support[0]).item() * last
            place = min(max(place, 0.0), float(last))
            below = min(math.floor(place), last - 1)
            found[row, below] += probability * (below + 1 - place)
            found[row, below + 1] += probability * (place - below)
    return found


def test_the_dense_form_equals_the_index_form():
    support, returns = torch.linspace(-10, 10, 51), 8 * torch.randn(20, 51)
    probabilities = torch.randn(20, 51).softmax(-1)
    found = project_atoms(probabilities, returns, support)
    torch.testing.assert_close(found, projected_by_index(probabilities, returns, support), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.sum(-1), torch.ones(20))


def test_the_projection_keeps_the_mean_of_returns_within_the_ends():
    support, returns = torch.linspace(-10, 10, 51), 20 * torch.rand(20, 51) - 10
    probabilities = torch.randn(20, 51).softmax(-1)
    found = (project_atoms(probabilities, returns, support) * support).sum(-1)
    torch.testing.assert_close(found, (probabilities * returns).sum(-1), atol=1e-4, rtol=0)


def test_the_divergence_is_zero_at_a_fit_and_has_the_slope_of_the_cross_entropy():
    targets = torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]])
    torch.testing.assert_close(categorical_divergence(targets, targets.log().clamp_min(-50)), torch.zeros(2))
    logits = torch.randn(2, 3, requires_grad=True)
    found = torch.autograd.grad(categorical_divergence(targets, logits).sum(), logits)
    expected = torch.autograd.grad(cross_entropy(logits, targets, reduction="sum"), logits)
    torch.testing.assert_close(found, expected)


def tabular(online: list[list[float]], target: list[list[float]], **options: Any) -> C51Algorithm:
    """One state, two actions, three atoms at 0, 1 and 2; the tables hold probabilities."""
    learner = C51Algorithm.build(
        EnvSpec((1,), "discrete", 2), hidden_sizes=(), num_atoms=3, v_min=0.0, v_max=2.0, gamma=0.5, **options
    )
    for network, table in ((learner.model.q, online), (learner.target["q"], target)):
        logits = torch.tensor(table).log().clamp_min(-200).view(6, 1)  # of which exp is zero to the bit
        network.load_state_dict({f"{LAYER}.weight": logits, f"{LAYER}.bias": torch.zeros(6)})
    return learner


ONLINE, TARGET = [[0.0, 1.0, 0.0], [0.25, 0.5, 0.25]], [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]  # means 1, 1; 0, 2
STEP = {"obs": torch.ones(1, 1), "next_obs": torch.ones(1, 1), "actions": torch.tensor([1]),
        "rewards": torch.tensor([0.5]), "dones": torch.zeros(1)}  # fmt: skip


def test_the_target_is_the_best_actions_distribution_moved_by_the_reward_and_shrunk_by_the_discount():
    learner = tabular(ONLINE, TARGET)
    assert learner.loss_target(STEP).tolist() == [[0.0, 0.5, 0.5]]  # a certain 2 becomes 0.5 + 0.5 * 2
    assert learner.loss_target({**STEP, "dones": torch.ones(1)}).tolist() == [[0.5, 0.5, 0.0]]
    assert learner.loss_target({**STEP, "discounts": torch.tensor([0.25])}).tolist() == [[0.0, 1.0, 0.0]]


def test_double_values_the_action_that_the_online_network_prefers():
    preferring = [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    assert tabular(preferring, TARGET, double=True).loss_target(STEP).tolist() == [[0.5, 0.5, 0.0]]  # a certain 0


def test_the_action_of_the_largest_mean_is_chosen():
    learner = tabular([[0.125, 0.125, 0.75], [0.25, 0.5, 0.25]], TARGET)  # means 0.125 + 2 * 0.75 and 1
    values = learner.model.q(STEP["obs"]).expected()
    torch.testing.assert_close(values, torch.tensor([[1.625, 1.0]]))
    assert learner.act(STEP["obs"], deterministic=True).actions.tolist() == [0]


def test_the_loss_and_the_priority_are_the_divergence_of_the_action_taken():
    loss = tabular(ONLINE, TARGET).loss(STEP)
    divergence = 0.5 * math.log(0.5 / 0.5) + 0.5 * math.log(0.5 / 0.25)
    assert loss.total.item() == pytest.approx(divergence)
    assert loss.rows["priorities"].tolist() == pytest.approx([divergence])
    assert (loss.metrics["q_value_mean"].item(), loss.metrics["target_q_mean"].item()) == (1.0, 1.5)
    assert loss.metrics["end_atoms_share"].item() == 0.5  # a target of 1.5 gives half to the last atom


@pytest.mark.parametrize("v_max", [-1.0, 1.0])
def test_a_range_upside_down_or_without_width_is_refused(v_max):
    with pytest.raises(ValueError, match=rf"v_min must be below v_max, got 1.0 and {v_max}"):
        C51Config(v_min=1.0, v_max=v_max)
