"""Linear layers in the forms that a GPU computes fastest: for populations, compiled losses and many rows."""

from typing import Any

import torch
from torch import Tensor, nn

MANY_ROWS = 2048  # from here on the gradient of a weight sums over blocks of rows, which run in parallel
MAX_BLOCKS = 32


class _ByBlocks(torch.autograd.Function):
    """bmm(x, weight); the gradient of the weight is a sum of products over blocks of rows."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor) -> Tensor:
        return torch.bmm(x, weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor]:
        x, weight = ctx.saved_tensors
        copies, rows, _ = x.shape
        count = max(each for each in range(1, MAX_BLOCKS + 1) if rows % each == 0)
        inputs, outputs = (each.reshape(copies * count, rows // count, -1) for each in (x, gradient))
        products = torch.bmm(inputs.mT, outputs).unflatten(0, (copies, count))
        grad_x = torch.bmm(gradient, weight.mT) if ctx.needs_input_grad[0] else None
        return grad_x, products.sum(1)


def in_population(weight: Tensor) -> bool:
    """Whether `vmap` computes all members of a population at once."""
    return torch._C._functorch.is_batchedtensor(weight)


def fuses(x: Tensor) -> bool:
    """Whether code is generated for a GPU, where sums over a layer's inputs join the operations around them."""
    return x.is_cuda and torch.compiler.is_dynamo_compiling()


def lower_precision(x: Tensor) -> torch.dtype | None:
    """Precision of matrix products with autocast."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def with_full_precision(layer: nn.Module, x: Tensor, *others: Tensor) -> Tensor:
    """Applies an output layer, which keeps its full precision with autocast."""
    if lower_precision(x) is None:
        return layer(x, *others)
    with torch.autocast(x.device.type, enabled=False):
        return layer(x.float(), *others)


def with_full_outputs(net: nn.Sequential, x: Tensor) -> Tensor:
    *hidden, last = net
    for layer in hidden:
        x = layer(x)
    return with_full_precision(last, x)


def ensemble_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x [copies, rows, fan_in] @ weight [copies, fan_in, fan_out] + bias [copies, 1, fan_out]."""
    populated, low = in_population(weight), lower_precision(x)
    if weight.shape[-1] == 1 and (fuses(x) or low is not None):  # values keep their full precision
        return (x * weight.mT).sum(-1, keepdim=True) + bias
    if not (x.is_cuda or populated):
        return torch.baddbmm(bias, x, weight)
    if low is not None:  # their gradients have this precision too
        x, weight = x.to(low), weight.to(low)
    many = x.shape[1] >= MANY_ROWS and torch.is_grad_enabled() and not populated
    return (_ByBlocks.apply(x, weight) if many else torch.bmm(x, weight)) + bias


class Linear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        if self.out_features == 1 and (fuses(x) or lower_precision(x) is not None):
            return (x * self.weight).sum(-1, keepdim=True) + self.bias
        if in_population(self.weight):  # in fewer operations than PyTorch's
            return x @ self.weight.mT + self.bias
        return super().forward(x)
