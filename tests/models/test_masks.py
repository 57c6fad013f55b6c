"""Masked policies and Q-values, against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from rl_training.algorithms.core.ops import epsilon_greedy, nth_valid
from rl_training.data.spaces import Observations
from rl_training.models.encoders import Normalizer
from rl_training.models.heads import CategoricalPolicy, MultiCategoricalPolicy
from rl_training.models.masks import INVALID, ActionMask, masked
from rl_training.models.q_networks import QNetwork
from rl_training.models.return_distributions import Atoms, ProposedQuantiles, Quantiles
from rl_training.types import EnvSpec

LOGITS = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
VALID = torch.tensor([[True, False, True, False]])


def test_log_probabilities_and_entropy_are_of_the_valid_actions():
    policy = CategoricalPolicy(nn.Identity())(LOGITS, VALID)
    first = 1 / (1 + math.exp(2))  # softmax of the logits 1 and 3
    expected = [math.log(first), math.log(1 - first)]
    for action, value in zip((0, 2), expected, strict=True):
        assert policy.log_prob(torch.tensor([action])).item() == pytest.approx(value, rel=1e-6)
    entropy = -first * expected[0] - (1 - first) * expected[1]
    log_prob, found = policy.log_prob_and_entropy(torch.tensor([2]))
    assert policy.entropy().item() == found.item() == pytest.approx(entropy, rel=1e-6)
    assert log_prob.item() == pytest.approx(expected[1], rel=1e-6)
    assert policy.mode().item() == 2  # not the invalid action 3


def test_invalid_actions_have_no_gradient_and_are_never_sampled():
    logits = LOGITS.clone().requires_grad_()
    policy = CategoricalPolicy(nn.Identity())(logits, VALID)
    log_prob, entropy = policy.log_prob_and_entropy(torch.tensor([0]))
    (gradient,) = torch.autograd.grad((log_prob + entropy).sum(), logits)
    assert gradient.isfinite().all()
    assert gradient[0, [1, 3]].tolist() == [0, 0]
    assert gradient[0, 0] != 0
    many = CategoricalPolicy(nn.Identity())(LOGITS.expand(1000, 4), VALID.expand(1000, 4)).sample()
    assert set(many.tolist()) == {0, 2}


def test_each_choice_of_a_multi_discrete_policy_has_its_part_of_the_mask():
    logits = torch.tensor([[1.0, 2.0, 0.0, 5.0, 0.0]])
    valid = torch.tensor([[True, False, True, False, True]])
    policy = MultiCategoricalPolicy(nn.Identity(), (2, 3))(logits, valid)
    log_prob, entropy = policy.log_prob_and_entropy(torch.tensor([[0, 2]]))
    assert log_prob.item() == pytest.approx(math.log(0.5))  # the first choice is certain, the second is even
    assert entropy.item() == pytest.approx(math.log(2))
    assert policy.mode().tolist() == [[0, 0]]


@pytest.mark.parametrize("packed", [False, True])
def test_the_mask_is_read_from_the_observation(packed):
    image = {"type": "Box", "dtype": "uint8", "shape": [1, 5, 5], "layout": "CHW"}
    parts = {
        "a": {"type": "Box", "dtype": "float32", "shape": [2]},
        "action_mask": {"type": "MultiBinary", "shape": [3]},
    }
    converter = Observations({"type": "Dict", "subspaces": {**parts, **({"image": image} if packed else {})}})
    spec = EnvSpec(
        converter.shape, "discrete", 3, obs_parts=converter.parts, action_mask=converter.place_of("action_mask")
    )
    obs = {
        "a": np.full((2, 4, 2), 0.7),
        "action_mask": np.tile([0, 1, 1], (2, 4, 1)),
        "image": np.full((2, 4, 1, 5, 5), 9),
    }
    rows = torch.from_numpy(converter.rows({name: obs[name] for name in converter.space["subspaces"]}))
    valid = ActionMask(spec)(rows)
    assert valid.shape == (2, 4, 3)
    assert valid.flatten(0, 1).tolist() == [[False, True, True]] * 8


def test_a_mask_without_valid_actions_counts_as_all_valid():
    mask = ActionMask(EnvSpec((3,), "discrete", 2, action_mask=1))
    assert mask(torch.tensor([[0.0, 0, 0], [0, 0, 1]])).tolist() == [[True, True], [False, True]]


def test_q_values_and_means_of_return_distributions_are_masked():
    valid = torch.tensor([[False, True]])
    support = torch.tensor([0.0, 1.0])
    atoms = Atoms(torch.tensor([[[0.0, 9.0], [0.0, 0.0]]]), support, valid)
    assert atoms.expected().tolist() == [[INVALID, 0.5]]
    quantiles = torch.tensor([[[5.0, 7.0], [1.0, 3.0]]])
    assert Quantiles(quantiles, support, valid).expected().tolist() == [[INVALID, 2.0]]
    taus = torch.tensor([[0.0, 0.25, 1.0]])
    proposed = ProposedQuantiles(quantiles, taus, taus, taus, valid)
    assert proposed.expected().tolist() == [[INVALID, 2.5]]
    assert masked(quantiles) is quantiles
    network = QNetwork(EnvSpec((3,), "discrete", 2, action_mask=1), (4,))
    values = network(torch.tensor([[0.0, 1, 0], [0, 1, 1]]))
    assert values[0, 1] == INVALID
    assert (values[[0, 1, 1], [0, 0, 1]] > -10).all()


def test_uniform_numbers_become_each_valid_action_equally_often():
    valid = torch.tensor([[False, True, False, True, True]]).expand(300, 5)
    actions = nth_valid(torch.arange(300) / 300, valid)
    assert torch.bincount(actions, minlength=5).tolist() == [0, 100, 0, 100, 100]


def test_random_actions_of_epsilon_greedy_are_valid_and_unmasked_ones_stay_as_they_are():
    values = torch.tensor([[3.0, 2.0, 1.0]]).expand(500, 3)
    valid = torch.tensor([[False, True, True]]).expand(500, 3)
    draw = lambda *given: epsilon_greedy(values, 1.0, torch.Generator().manual_seed(0), *given)  # noqa: E731
    assert set(draw(valid).tolist()) == {1, 2}
    assert draw(torch.ones_like(valid)).equal(draw())
    greedy = epsilon_greedy(masked(values, valid), 0.0, None, valid)
    assert set(greedy.tolist()) == {1}


def test_normalizers_leave_the_mask_as_it_is():
    normalizer = Normalizer((3,), clip=10.0)
    normalizer.unscaled = slice(1, 3)
    rows = torch.tensor([[5.0, 1, 0], [9.0, 1, 1]])
    normalizer.merge(rows)
    normalizer.merge(rows + torch.tensor([1.0, 0, 0]))
    assert normalizer(rows)[:, 1:].equal(rows[:, 1:])
    assert normalizer(rows)[:, 0].tolist() != rows[:, 0].tolist()
    normalizer.fit(rows)
    assert normalizer(rows)[:, 1:].equal(rows[:, 1:])
