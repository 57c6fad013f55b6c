"""Networks of action values: dueling, noise, and the papers' sizes on pixels."""

from __future__ import annotations

import math

import pytest
import torch

from rl_training.models import Layers, QNetwork
from rl_training.models.q_networks import NoisyLinear, Stack
from rl_training.types import EnvSpec

VECTORS = EnvSpec((2,), "discrete", 3)
PIXELS = EnvSpec((4, 84, 84), "discrete", 6, obs_dtype="uint8")


def test_dueling_values_average_to_the_state_value():
    network, obs = QNetwork(VECTORS, (8,), dueling=True), torch.randn(5, 2)
    values, head = network(obs), network.head
    torch.testing.assert_close(values.mean(-1), head.get_submodule("value")(obs)[:, 0])
    torch.testing.assert_close(values.diff(dim=-1), head.advantage(obs).diff(dim=-1))


@pytest.mark.parametrize("dueling", [False, True])
def test_on_pixels_512_hidden_units_are_the_network_of_the_papers(dueling):
    network = QNetwork(PIXELS, (512,), dueling=dueling)
    sizes = [tuple(weights.shape) for weights in network.head.parameters() if weights.dim() == 2]
    assert sizes == [(512, 3136), (6, 512)] + [(512, 3136), (1, 512)] * dueling


def test_without_noise_a_noisy_layer_is_its_means():
    layer, x = NoisyLinear(3, 2), torch.randn(5, 3)
    assert torch.equal(layer(x), layer.mean(x))


def test_the_noise_of_a_weight_is_the_product_of_its_ends():
    layer, x, noise = NoisyLinear(3, 2), torch.randn(5, 3), torch.randn(5)
    into, out = ((each.sign() * each.abs().sqrt()) for each in (noise[:3], noise[3:]))
    weight = layer.mean.weight + layer.weight_scale * torch.outer(out, into)
    bias = layer.mean.bias + layer.bias_scale * out
    torch.testing.assert_close(layer(x, noise), x @ weight.T + bias)


@pytest.mark.parametrize("between", [(), (4,)], ids=["rows", "rows of fractions"])
def test_rows_may_have_noise_of_their_own(between):
    stack = Stack((3, 4, 2), Layers(), noisy=True)
    x, noise = torch.randn(5, *between, 3), torch.randn(5, sum(stack.noise_sizes))
    alone = torch.stack([stack(row, its) for row, its in zip(x, noise, strict=True)])
    torch.testing.assert_close(stack(x, noise), alone)


def test_means_and_scales_begin_as_in_the_paper():
    layer = NoisyLinear(400, 300)
    weights = layer.mean.weight.detach()
    assert weights.abs().max().item() <= 1 / math.sqrt(400)
    assert weights.std().item() == pytest.approx(0.05 / math.sqrt(3), rel=0.01)  # of an even draw within 0.05
    for scale in (layer.weight_scale, layer.bias_scale):
        torch.testing.assert_close(scale.detach(), torch.full_like(scale, 0.5 / 20))


def test_each_layer_of_a_stack_takes_its_own_part_of_the_noise():
    stack, x = Stack((2, 4, 3), Layers(), noisy=True), torch.randn(5, 2)
    noise = torch.randn(sum(stack.noise_sizes))
    assert stack.noise_sizes == [6, 7]
    first, second = stack.layers
    torch.testing.assert_close(stack(x, noise), second(first(x, noise[:6]).relu(), noise[6:]))
