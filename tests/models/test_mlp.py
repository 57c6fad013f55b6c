"""Plain networks and ensembles of them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from rl_training.models.mlp import EnsembleLayerNorm, EnsembleLinear, ReLU, mlp, orthogonal
from rl_training.models.values import Critic, StateValue


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def alone(ensemble: nn.Sequential, copy: int) -> nn.Sequential:
    """One member of an ensemble, written with torch's own layers."""
    layers = nn.Sequential()
    for layer in ensemble:
        if isinstance(layer, EnsembleLinear):
            linear = nn.Linear(layer.weight.shape[1], layer.weight.shape[2])
            linear.weight.data, linear.bias.data = layer.weight[copy].data.T, layer.bias[copy, 0].data
            layer = linear
        layers.append(layer)
    return layers


def test_an_ensemble_equals_its_networks_run_one_by_one():
    ensemble, x = mlp((3, 8, 2), copies=4), torch.randn(4, 5, 3)
    one_by_one = torch.stack([alone(ensemble, i)(x[i]) for i in range(4)])
    torch.testing.assert_close(ensemble(x), one_by_one)


def test_layer_norm_of_an_ensemble_has_a_scale_and_a_shift_for_each_copy():
    norm, x = EnsembleLayerNorm(3, 8), 4 + 2 * torch.randn(3, 5, 8)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    plain = [nn.functional.layer_norm(x[i], (8,), norm.weight[i, 0], norm.bias[i, 0]) for i in range(3)]
    torch.testing.assert_close(norm(x), torch.stack(plain))
    assert sum(isinstance(layer, EnsembleLayerNorm) for layer in mlp((2, 8, 8, 1), copies=3, layer_norm=True)) == 2


def test_layers_start_within_the_bound_of_their_fan_in():
    layer = EnsembleLinear(50, 16, 8)
    assert layer.weight.abs().max() <= 0.25  # 1 / sqrt(16)
    assert layer.weight.std().item() == pytest.approx(0.25 / math.sqrt(3), rel=0.05)


def test_the_activation_stands_between_layers_and_not_after_the_last():
    network = mlp((1, 2, 1))
    weights = {"0.weight": [[1.0], [-1.0]], "0.bias": [0.0, 0.0], "2.weight": [[-1.0, -2.0]], "2.bias": [0.0]}
    network.load_state_dict({name: torch.tensor(weight) for name, weight in weights.items()})
    assert network(torch.tensor([[3.0], [-3.0]])).flatten().tolist() == [-3.0, -6.0]


def test_a_critic_keeps_leading_axes_and_values_each_row_by_itself():
    critic, obs, actions = Critic(3, 2, (8,), copies=2), torch.randn(4, 5, 3), torch.randn(4, 5, 2)
    values = critic(obs, actions)
    assert values.shape == (2, 4, 5)
    rows = torch.cat([obs[3, 1], actions[3, 1]])
    torch.testing.assert_close(values[:, 3, 1], torch.stack([alone(critic.net, i)(rows)[0] for i in range(2)]))


def test_a_state_value_has_one_number_a_row():
    value, obs = StateValue(3, (8,)), torch.randn(5, 3)
    torch.testing.assert_close(value(obs), value.net(obs)[:, 0])


@pytest.mark.parametrize("copies", [None, 3])
def test_orthogonal_weights_have_rows_of_length_gain_and_zero_biases(copies):
    network = orthogonal(mlp((4, 8, 6, 2), copies=copies), gain=1.5, last_gain=0.1)
    for layer, gain in (("0", 1.5), ("2", 1.5), ("4", 0.1)):
        weights = network.get_parameter(f"{layer}.weight")
        for weight in weights if copies else weights[None]:
            short = weight if weight.shape[0] <= weight.shape[1] else weight.T
            torch.testing.assert_close(short @ short.T, gain**2 * torch.eye(len(short)), atol=1e-5, rtol=0)
        assert not network.get_parameter(f"{layer}.bias").any()


def test_orthogonal_copies_differ_from_one_another():
    weight = orthogonal(mlp((4, 4), copies=2)).get_parameter("0.weight")
    assert not torch.allclose(weight[0], weight[1])


@pytest.mark.parametrize("by_member", [False, True])
def test_relu_has_the_same_gradient_when_compiled(by_member):
    torch.compiler.reset()
    relu, x = ReLU(), torch.randn(3, 5)
    x[0, 0] = 0
    used = torch.vmap(relu) if by_member else relu

    def gradient(loss):
        leaf = x.clone().requires_grad_()
        loss(leaf).backward()
        return leaf.grad

    def loss(leaf):
        return (used(leaf) * torch.arange(15.0).view(3, 5)).sum()

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    assert torch.equal(gradient(compiled), gradient(loss))
    assert torch.equal(compiled(x), loss(x))


@pytest.mark.parametrize(("activation", "mask"), [(nn.ReLU, True), (ReLU, False)])
def test_a_compiled_relu_saves_no_mask_for_backward(activation, mask):
    torch.compiler.reset()
    relu, weight, saved = activation(), torch.randn(8, 8), []

    def save(tensor):
        saved.append(tensor.dtype)
        return tensor

    compiled = torch.compile(lambda x: (relu(x) @ weight).sum(), backend="aot_eager_decomp_partition", fullgraph=True)
    with torch.autograd.graph.saved_tensors_hooks(save, lambda each: each):
        compiled(torch.randn(8, 8, requires_grad=True))
    assert (torch.bool in saved) == mask
