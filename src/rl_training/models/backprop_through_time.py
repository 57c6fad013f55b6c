"""Steps of an LSTM and a GRU, and loops over them whose backward pass is written out.

Autograd would launch twice as many operations for each step, and would add up the gradient of the weights step by step.
Tensors are [time, copies, rows, ...]. `projected` are the inputs W x + b of all gates. `continues` is 0 at steps that
start an episode, which resets the states.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def lstm_step(projected: Tensor, hidden: Tensor, cell: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """c' = f c + i g, h' = o tanh(c') with o, i, f = sigmoid(…), g = tanh(…); returns h', c', [o i f], g, tanh(c')."""
    size = hidden.shape[-1]
    gates, candidate = torch.baddbmm(projected, hidden, weight).split((3 * size, size), -1)
    gates, candidate = gates.sigmoid(), candidate.tanh()
    output_gate, input_gate, forget_gate = gates.chunk(3, -1)
    cell = torch.addcmul(forget_gate * cell, input_gate, candidate)
    tanh_cell = cell.tanh()
    return output_gate * tanh_cell, cell, gates, candidate, tanh_cell


class LSTMSteps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, projected: Tensor, continues: Tensor, hidden: Tensor, cell: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        steps = []
        for x, keep in zip(projected.unbind(0), continues.unbind(0), strict=True):
            before = (hidden * keep, cell * keep)
            hidden, cell, *rest = lstm_step(x, *before, weight)
            steps.append((hidden, *before, *rest))
        outputs, *saved = (torch.stack(each) for each in zip(*steps, strict=True))
        ctx.save_for_backward(continues, weight, *saved)
        return outputs, cell

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        continues, weight, hiddens, cells, gates, candidate, tanh_cell = ctx.saved_tensors
        output_gate, input_gate, forget_gate = gates.chunk(3, -1)
        # Derivatives by the sums in the gates: of h' (o) and of c' (i, f and g), for all steps at once.
        by_gates = gates * (1 - gates) * torch.cat([tanh_cell, candidate, cells], -1)
        by_sums = torch.cat([by_gates, input_gate * (1 - candidate.square())], -1)
        by_cell, to_last_cell = output_gate * (1 - tanh_cell.square()), forget_gate * continues
        (grad_hidden, grad_cell), transposed, grad_sums = (torch.zeros_like(hiddens[0]), gradients[1]), weight.mT, []
        by_step = [each.unbind(0) for each in (gradients[0], by_cell, by_sums, to_last_cell, continues)]
        for grad_output, by_cell_now, by_sums_now, to_last, keep in reversed([*zip(*by_step, strict=True)]):
            grad_hidden = grad_hidden + grad_output
            grad_cell = torch.addcmul(grad_cell, grad_hidden, by_cell_now)
            grad_sums.append(torch.cat([grad_hidden, grad_cell, grad_cell, grad_cell], -1) * by_sums_now)
            grad_hidden, grad_cell = torch.bmm(grad_sums[-1], transposed) * keep, grad_cell * to_last
        grad_projected = torch.stack(grad_sums[::-1])
        return grad_projected, None, grad_hidden, grad_cell, _weight_gradient(hiddens, grad_projected)


def gru_step(projected: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    """h' = (1 - z) n + z h with r, z = sigmoid(…), n = tanh(W x + r (U h + b)); returns h', [r z], n, U h + b."""
    size = hidden.shape[-1]
    recurrent, recurrent_candidate = torch.bmm(hidden, weight).split((2 * size, size), -1)
    projected_gates, projected_candidate = projected.split((2 * size, size), -1)
    gates, recurrent_candidate = (projected_gates + recurrent).sigmoid(), recurrent_candidate + bias
    reset_gate, update_gate = gates.chunk(2, -1)
    candidate = torch.addcmul(projected_candidate, reset_gate, recurrent_candidate).tanh()
    return torch.lerp(candidate, hidden, update_gate), gates, candidate, recurrent_candidate


class GRUSteps(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, projected: Tensor, continues: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        steps = []
        for x, keep in zip(projected.unbind(0), continues.unbind(0), strict=True):
            before = hidden * keep
            hidden, *rest = gru_step(x, before, weight, bias)
            steps.append((hidden, before, *rest))
        outputs, *saved = (torch.stack(each) for each in zip(*steps, strict=True))
        ctx.save_for_backward(continues, weight, *saved)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        continues, weight, hiddens, gates, candidate, recurrent_candidate = ctx.saved_tensors
        reset_gate, update_gate = gates.chunk(2, -1)
        # Derivatives of h' by the sums in r, z and n, for all steps at once.
        by_candidate = (1 - update_gate) * (1 - candidate.square())
        by_gates = gates * (1 - gates) * torch.cat([by_candidate * recurrent_candidate, hiddens - candidate], -1)
        by_sums = torch.cat([by_gates, by_candidate * reset_gate], -1)  # the recurrent sums
        grad_hidden, transposed, grads_after = torch.zeros_like(hiddens[0]), weight.mT, []
        by_step = [each.unbind(0) for each in (gradients[0], by_sums, update_gate, continues)]
        for grad_output, by_sums_now, update_now, keep in reversed([*zip(*by_step, strict=True)]):
            after = grad_hidden + grad_output
            grads_after.append(after)
            grad_hidden = torch.baddbmm(after * update_now, torch.cat([after] * 3, -1) * by_sums_now, transposed) * keep
        grad_after = torch.stack(grads_after[::-1])  # by h' of each step
        grad_sums = torch.cat([grad_after] * 3, -1) * by_sums
        grad_candidate = grad_after * by_candidate
        grad_projected = torch.cat([grad_sums[..., : gates.shape[-1]], grad_candidate], -1)
        grad_bias = (grad_candidate * reset_gate).sum((0, 2)).unsqueeze(1)
        return grad_projected, None, grad_hidden, _weight_gradient(hiddens, grad_sums), grad_bias


def _weight_gradient(hiddens: Tensor, grad_sums: Tensor) -> Tensor:
    """One product over all steps."""
    rows, sums = (each.transpose(0, 1).flatten(1, 2) for each in (hiddens, grad_sums))
    return torch.bmm(rows.mT, sums)
