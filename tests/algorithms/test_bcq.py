"""Discrete BCQ: the supported actions, the losses by hand, and an independent rendering of the authors' step."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import log_softmax, nll_loss, smooth_l1_loss

from rl_training.algorithms import BCQAlgorithm, BCQConfig, bcq_loss
from rl_training.algorithms.bcq import supported_values
from rl_training.types import EnvSpec

ROWS = {"obs": torch.zeros(2, 3), "next_obs": torch.zeros(2, 3), "actions": torch.tensor([2, 0]),
        "rewards": torch.tensor([1.0, 2.0]), "dones": torch.tensor([0.0, 1.0])}  # fmt: skip


def table(**options: Any) -> BCQAlgorithm:
    """Q = 1, 2, 9, target Q = 5, 4, 3, and probabilities 0.5, 0.4 and 0.1, whatever the observation is."""
    learner = BCQAlgorithm.build(EnvSpec((3,), "discrete", 3), hidden_sizes=(), gamma=0.5, **options)
    with torch.no_grad():
        for name, parameter in learner.named_parameters():
            if name.endswith("weight"):
                parameter.zero_()
        learner.model.q.head.advantage.layers[0].bias.copy_(torch.tensor([1.0, 2.0, 9.0]))
        learner.target.get_parameter("q.head.advantage.layers.0.bias").copy_(torch.tensor([5.0, 4.0, 3.0]))
        learner.model.behaviour.net[0].bias.copy_(torch.tensor([0.5, 0.4, 0.1]).log())
    return learner


@pytest.mark.parametrize(("threshold", "best"), [(0.0, 2), (0.19, 2), (0.21, 1), (0.79, 1), (0.81, 0), (0.99, 0)])
def test_the_threshold_is_relative_to_the_likeliest_action(threshold, best):
    learner = table(threshold=threshold)
    assert learner.act(torch.randn(4, 3), deterministic=True).actions.tolist() == [best] * 4


def test_unsupported_actions_have_no_value():
    values = supported_values(torch.tensor([[1.0, 2.0, 9.0]]), torch.tensor([[0.5, 0.4, 0.1]]).log(), 0.3)
    assert values.tolist() == [[1.0, 2.0, -math.inf]]


def test_the_target_values_the_best_supported_action_by_the_target_network():
    assert table().target_q(ROWS).tolist() == [1 + 0.5 * 4.0, 2.0]  # action 1, not 2; nothing after a termination


def test_losses_are_those_worked_out_by_hand():
    logits = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    loss = bcq_loss(torch.tensor([1.0, 4.0]), torch.tensor([1.5, 1.0]), logits, torch.tensor([0, 0]), 0.1)
    assert loss.terms["critic_loss"].item() == pytest.approx((0.5 * 0.25 + 2.5) / 2)
    likelihood = (-math.log(1 + math.e) + 2 - math.log(1 + math.e**2)) / 2
    assert loss.terms["bc_loss"].item() == pytest.approx(0.1 * (1 + 4) / 4 - likelihood)


def test_the_whole_loss_is_that_of_the_authors_step(discrete, draw):
    learner, rows = BCQAlgorithm.build(discrete, hidden_sizes=(8,), gamma=0.9), draw(discrete, 12)
    with torch.no_grad():
        for parameter in learner.target.parameters():
            parameter.add_(torch.randn_like(parameter))
        learner.model.behaviour.net[-1].weight.mul_(10)  # so that some actions are unlikely
    q, slow, imitation = learner.model.q, learner.target["q"], learner.model.behaviour.net
    with torch.no_grad():
        likely = log_softmax(imitation(rows["next_obs"]), 1).exp()
        allowed = (likely / likely.max(1, keepdim=True)[0] > 0.3).float()
        assert 0 < allowed.mean() < 1
        chosen = (allowed * q(rows["next_obs"]) + (1 - allowed) * -1e8).argmax(1, keepdim=True)
        y = rows["rewards"] + 0.9 * (1 - rows["dones"]) * slow(rows["next_obs"]).gather(1, chosen)[:, 0]
    logits = imitation(rows["obs"])
    now = q(rows["obs"]).gather(1, rows["actions"].unsqueeze(1))[:, 0]
    expected = smooth_l1_loss(now, y) + nll_loss(log_softmax(logits, 1), rows["actions"]) + 0.01 * (logits**2).mean()
    torch.testing.assert_close(learner.loss(rows).total, expected)


def test_each_term_trains_its_own_network_alone(discrete, draw, reached):
    learner = BCQAlgorithm.build(discrete, hidden_sizes=(8,))
    terms = learner.loss(draw(discrete, 6)).terms
    assert reached(terms["critic_loss"], learner) == {"q"}
    assert reached(terms["bc_loss"], learner) == {"behaviour"}


def test_exploration_is_uniform_over_all_actions():
    learner, generator = table(epsilon=0.5), torch.Generator().manual_seed(0)
    shares = torch.bincount(learner.act(torch.zeros(6000, 3), generator=generator).actions, minlength=3) / 6000
    torch.testing.assert_close(shares, torch.tensor([1 / 6, 4 / 6, 1 / 6]), atol=0.02, rtol=0)
    deterministic = learner.act(torch.zeros(100, 3), deterministic=True, generator=generator).actions
    assert deterministic.tolist() == [1] * 100


@pytest.mark.parametrize("threshold", [-0.1, 1.0])
def test_a_threshold_outside_its_range_is_refused(threshold):
    with pytest.raises(ValueError, match="threshold"):
        BCQConfig(threshold=threshold)


def test_the_networks_share_no_layers(discrete):
    model: nn.Module = BCQAlgorithm.build(discrete, hidden_sizes=(8,)).model
    assert {name.split(".")[0] for name, _ in model.named_parameters()} == {"q", "behaviour"}
