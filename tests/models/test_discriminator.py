"""The discriminator's network: what it sees of a row, and how steep it can be."""

from __future__ import annotations

import torch

from rl_training.models import MLPGAILDiscriminator
from rl_training.models.actor_critic import UnitSpectralNorm


def test_discrete_actions_are_seen_as_one_hot_vectors():
    network = MLPGAILDiscriminator(2, 3, (), discrete=True)
    seen = network.inputs(torch.tensor([[0.5, -1.0], [2.0, 0.0]]), torch.tensor([2, 0]))
    assert seen.tolist() == [[0.5, -1.0, 0.0, 0.0, 1.0], [2.0, 0.0, 1.0, 0.0, 0.0]]


def test_each_choice_is_seen_as_its_own_one_hot_vector():
    network = MLPGAILDiscriminator(1, 2, (), action_sizes=(3, 2))
    seen = network.inputs(torch.tensor([[0.5], [2.0]]), torch.tensor([[2, 0], [0, 1]]))
    assert seen.tolist() == [[0.5, 0.0, 0.0, 1.0, 1.0, 0.0], [2.0, 1.0, 0.0, 0.0, 0.0, 1.0]]


def test_box_actions_are_seen_as_they_are():
    network = MLPGAILDiscriminator(1, 2, ())
    weight, bias = network.net.parameters()
    weight.data, bias.data = torch.tensor([[1.0, 10.0, 100.0]]), torch.zeros(1)
    logits = network(torch.tensor([[2.0], [0.0]]), torch.tensor([[0.5, -0.25], [0.0, 1.0]]))
    assert logits.tolist() == [2 + 5 - 25, 100]


def test_spectral_norm_makes_the_largest_singular_value_one():
    network = MLPGAILDiscriminator(2, 1, (), spectral_norm=True)
    bias, weight = network.net.parameters()
    weight.data, bias.data = torch.tensor([[2.0, 1.0, 2.0]]), torch.zeros(1)  # of length 3
    logits = network(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([[0.0], [3.0]]))
    torch.testing.assert_close(logits, torch.tensor([2 / 3, 2.0]))


def test_spectral_norm_divides_all_singular_values_by_the_largest():
    weight = torch.diag(torch.tensor([3.0, 4.0, 2.0]))  # of Frobenius norm sqrt(29)
    torch.testing.assert_close(UnitSpectralNorm()(weight), torch.diag(torch.tensor([0.75, 1.0, 0.5])))


def test_spectral_norm_bounds_every_slope_by_one():
    torch.manual_seed(0)
    network = MLPGAILDiscriminator(3, 2, (16, 16), spectral_norm=True)
    for parameter in network.parameters():
        parameter.data *= 50
    obs = torch.randn(64, 3, requires_grad=True)
    (slopes,) = torch.autograd.grad(network(obs, torch.randn(64, 2)).sum(), obs)
    assert slopes.norm(dim=1).max() <= 1 + 1e-5


def test_hidden_layers_are_bounded_by_tanh():
    torch.manual_seed(0)
    network = MLPGAILDiscriminator(2, 1, (4,))
    first, last = network.net[0], network.net[-1]
    inputs = torch.randn(5, 3)
    expected = last(first(inputs).tanh()).squeeze(-1)
    torch.testing.assert_close(network(inputs[:, :2], inputs[:, 2:]), expected)
