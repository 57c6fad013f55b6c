"""Linear layers in the forms for a GPU equal the plain ones, values and gradients."""

import pytest
import torch
from torch import Tensor, nn

from rl_training.algorithms.core.population import stack_members
from rl_training.models import products
from rl_training.models.mlp import EnsembleLinear, mlp
from rl_training.models.products import Linear, ensemble_linear


def grads(output: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad((output * torch.arange(output.numel()).view(output.shape).cos()).sum(), inputs)


def ensemble(rows: int = 62, outputs: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    shapes = (2, rows, 3), (2, 3, outputs), (2, 1, outputs)
    return tuple(torch.randn(shape, requires_grad=True) for shape in shapes)  # type: ignore[return-value]


def assert_equal_to_baddbmm(output: Tensor, x: Tensor, weight: Tensor, bias: Tensor) -> None:
    expected = torch.baddbmm(bias, x, weight)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(grads(output, x, weight, bias), grads(expected, x, weight, bias))


@pytest.mark.parametrize("rows", [62, 64, 67])  # 31, 32 and 1 blocks
def test_blocks_of_rows_give_the_gradient_of_one_product(rows):
    x, weight, bias = ensemble(rows)
    assert_equal_to_baddbmm(products._ByBlocks.apply(x, weight) + bias, x, weight, bias)


@pytest.mark.parametrize("outputs", [1, 5])
def test_layers_of_compiled_losses_on_a_gpu_equal_the_plain_ones(outputs, monkeypatch):
    monkeypatch.setattr(products, "fuses", lambda x: True)
    tensors = ensemble(outputs=outputs)
    assert_equal_to_baddbmm(ensemble_linear(*tensors), *tensors)
    layer, x = Linear(3, outputs), torch.randn(7, 3)
    torch.testing.assert_close(layer(x), nn.functional.linear(x, layer.weight, layer.bias))


@pytest.mark.parametrize("lead", [(7,), (2, 7)])
def test_a_population_of_linear_layers_has_their_gradients_without_a_copy(lead):
    members = [nn.Sequential(Linear(3, 5)) for _ in range(4)]
    params, _ = stack_members(members)
    weight, bias = params["0.weight"], params["0.bias"]
    x = torch.randn(4, *lead, 3, requires_grad=True)

    def member(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.func.functional_call(members[0], {"0.weight": weight, "0.bias": bias}, (x,))

    output = torch.vmap(member)(x, weight, bias)
    found = grads(output, x, weight, bias)
    expected = torch.stack([nn.functional.linear(*each) for each in zip(x, weight, bias, strict=True)])
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(found, grads(expected, x, weight, bias))
    assert found[1].stride() == weight.stride()  # so that nothing is copied


def test_a_population_of_ensembles_has_their_gradients():
    layers = [EnsembleLinear(2, 3, 5) for _ in range(4)]
    weight = torch.stack([layer.weight.detach() for layer in layers]).requires_grad_()
    bias = torch.stack([layer.bias.detach() for layer in layers]).requires_grad_()
    x = torch.randn(4, 2, 7, 3, requires_grad=True)
    output = torch.vmap(ensemble_linear)(x, weight, bias)
    expected = torch.stack([torch.baddbmm(c, a, b) for a, b, c in zip(x, weight, bias, strict=True)])
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(grads(output, x, weight, bias), grads(expected, x, weight, bias))


def test_networks_keep_the_parameters_of_pytorchs_layers():
    net = mlp((3, 4, 1))
    assert [name for name, _ in net.named_parameters()] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert isinstance(net[0], nn.Linear)
