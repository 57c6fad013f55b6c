"""Steps of an LSTM and a GRU, and loops over them whose backward pass is written out.

Autograd would launch twice as many operations for each step, and would add up the gradient of the weights step by step.
Tensors are [time, copies, rows, ...]. `continues` is 0 at steps that start an episode, which resets the states.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def lstm_step(seen: Tensor, hidden: Tensor, cell: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """c' = f c + i g, h' = o tanh(c') with o, i, f = sigmoid(…), g = tanh(…); returns h', c', [o i f], g, tanh(c')."""
    size = hidden.shape[-1]
    gates, new = torch.baddbmm(seen, hidden, weight).split((3 * size, size), -1)
    gates, new = gates.sigmoid(), new.tanh()
    emit, admit, forget = gates.chunk(3, -1)
    cell = torch.addcmul(forget * cell, admit, new)
    shown = cell.tanh()
    return emit * shown, cell, gates, new, shown


class LSTMSteps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, seen: Tensor, continues: Tensor, hidden: Tensor, cell: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        steps = []
        for now, keeps in zip(seen.unbind(0), continues.unbind(0), strict=True):
            before = (hidden * keeps, cell * keeps)
            hidden, cell, *rest = lstm_step(now, *before, weight)
            steps.append((hidden, *before, *rest))
        outputs, *saved = (torch.stack(each) for each in zip(*steps, strict=True))
        ctx.save_for_backward(continues, weight, *saved)
        return outputs, cell

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        continues, weight, hiddens, cells, gates, new, shown = ctx.saved_tensors
        emit, admit, forget = gates.chunk(3, -1)
        # Derivatives by h' (of o) and by c' (of i, f and g), for all steps at once.
        slopes = torch.cat([gates * (1 - gates) * torch.cat([shown, new, cells], -1), admit * (1 - new.square())], -1)
        to_cell, kept = emit * (1 - shown.square()), forget * continues
        (later, later_cell), transposed, totals = (torch.zeros_like(hiddens[0]), gradients[1]), weight.mT, []
        by_step = [each.unbind(0) for each in (gradients[0], to_cell, slopes, kept, continues)]
        for outer, to_cell_now, slope, kept_now, keeps in reversed([*zip(*by_step, strict=True)]):
            later = later + outer
            later_cell = torch.addcmul(later_cell, later, to_cell_now)
            totals.append(torch.cat([later, later_cell, later_cell, later_cell], -1) * slope)
            later, later_cell = torch.bmm(totals[-1], transposed) * keeps, later_cell * kept_now
        total = torch.stack(totals[::-1])
        return total, None, later, later_cell, _weight_gradient(hiddens, total)


def gru_step(seen: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    """h' = (1 - z) n + z h with r, z = sigmoid(…), n = tanh(W x + r (U h + b)); returns h', [r z], n, U h + b."""
    size = hidden.shape[-1]
    recalled, recalled_new = torch.bmm(hidden, weight).split((2 * size, size), -1)
    seen_gates, seen_new = seen.split((2 * size, size), -1)
    gates, recalled_new = (seen_gates + recalled).sigmoid(), recalled_new + bias
    reset, keep = gates.chunk(2, -1)
    new = torch.addcmul(seen_new, reset, recalled_new).tanh()
    return torch.lerp(new, hidden, keep), gates, new, recalled_new


class GRUSteps(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, seen: Tensor, continues: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        steps = []
        for now, keeps in zip(seen.unbind(0), continues.unbind(0), strict=True):
            before = hidden * keeps
            hidden, *rest = gru_step(now, before, weight, bias)
            steps.append((hidden, before, *rest))
        outputs, *saved = (torch.stack(each) for each in zip(*steps, strict=True))
        ctx.save_for_backward(continues, weight, *saved)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        continues, weight, hiddens, gates, new, recalled = ctx.saved_tensors
        reset, keep = gates.chunk(2, -1)
        # Derivatives of h' by the sums in r, z and n, for all steps at once.
        to_new = (1 - keep) * (1 - new.square())
        to_gates = gates * (1 - gates) * torch.cat([to_new * recalled, hiddens - new], -1)
        slopes = torch.cat([to_gates, to_new * reset], -1)  # by the recurrent sums
        later, transposed, outers = torch.zeros_like(hiddens[0]), weight.mT, []
        by_step = [each.unbind(0) for each in (gradients[0], slopes, keep, continues)]
        for outer, slope, keep_now, keeps in reversed([*zip(*by_step, strict=True)]):
            later = later + outer
            outers.append(later)
            later = torch.baddbmm(later * keep_now, torch.cat([later] * 3, -1) * slope, transposed) * keeps
        outer = torch.stack(outers[::-1])
        total = torch.cat([outer] * 3, -1) * slopes
        by_new = outer * to_new
        by_seen = torch.cat([total[..., : gates.shape[-1]], by_new], -1)
        return by_seen, None, later, _weight_gradient(hiddens, total), (by_new * reset).sum((0, 2)).unsqueeze(1)


def _weight_gradient(hiddens: Tensor, totals: Tensor) -> Tensor:
    """One product over all steps."""
    rows, sums = (each.transpose(0, 1).flatten(1, 2) for each in (hiddens, totals))
    return torch.bmm(rows.mT, sums)
