"""LSTM (Hochreiter & Schmidhuber, 1997) and GRU (Cho et al., 2014, arXiv:1406.1078) over sequences of several episodes.

PyTorch's own modules cannot reset the state in the middle of a sequence, where an episode starts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from rl_training.models.backprop_through_time import GRUSteps, LSTMSteps, gru_step, lstm_step
from rl_training.models.products import in_population
from rl_training.types import Batch

MemoryKind = Literal["lstm", "gru"]
IS_FIRST = "is_first"  # entry of a memory: 1 at the first step of an episode, which resets the state


class Recurrent(nn.Module):
    """`copies` independent recurrent layers of this size with the same inputs, computed as one.

    A memory has one row per sequence: the state before its first step, as `parts` [rows, copies * size], and `is_first`
    [rows, time].
    """

    gates: ClassVar[int]
    parts: ClassVar[tuple[str, ...]]

    def __init__(self, inputs: int, size: int, *, copies: int = 1) -> None:
        super().__init__()
        self.size, self.copies, bound = size, copies, 1 / math.sqrt(size)
        self.inputs = nn.Linear(inputs, copies * self.gates * size)
        self.weight = nn.Parameter(torch.empty(copies, size, self.gates * size))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    @torch.no_grad()
    def orthogonal(self) -> None:
        """Initialises the weights of each gate orthogonally and biases to zero."""
        blocks = [
            *self.inputs.weight.split(self.size),
            *(each for copy in self.weight for each in copy.split(self.size, 1)),
        ]
        for block in blocks:
            nn.init.orthogonal_(block)
        nn.init.zeros_(self.inputs.bias)

    def initial(self, rows: int) -> Batch:
        """Memory at the start of an episode."""
        zeros = self.weight.new_zeros(rows, self.copies * self.size)
        return {**{name: zeros.clone() for name in self.parts}, IS_FIRST: self.weight.new_ones(rows)}

    def forward(self, x: Tensor, memory: Batch) -> tuple[Tensor, Batch]:
        """Returns the outputs [rows, time, copies, size] of inputs [rows, time, inputs], and the memory after them."""
        states = [memory[name].unflatten(-1, (self.copies, self.size)).transpose(0, 1) for name in self.parts]
        projected = self.inputs(x).unflatten(-1, (self.copies, -1)).permute(1, 2, 0, 3)  # [time, copies, rows, gates]
        continues = (1 - memory[IS_FIRST]).mT.unsqueeze(1).unsqueeze(-1)  # [time, 1, rows, 1]
        is_traced = torch.compiler.is_compiling() or in_population(self.weight)
        steps = self.steps if is_traced or not torch.is_grad_enabled() else self.differentiable_steps
        outputs, *states = steps(projected, continues, *states)
        after = {name: state.transpose(0, 1).flatten(1) for name, state in zip(self.parts, states, strict=True)}
        return outputs.permute(2, 0, 1, 3), {**after, IS_FIRST: torch.zeros_like(memory[IS_FIRST][:, 0])}

    def steps(self, projected: Tensor, continues: Tensor, *states: Tensor) -> Sequence[Tensor]:
        """Returns the outputs [time, copies, rows, size] and the last states."""
        outputs = []
        for x, keep in zip(projected.unbind(0), continues.unbind(0), strict=True):
            states = self.step(x, *(state * keep for state in states))
            outputs.append(states[0])
        return torch.stack(outputs), *states

    def step(self, projected: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        """Returns the states [copies, rows, size] after one step; the first one is the output."""
        raise NotImplementedError(f"{type(self).__name__} must define step(projected, *states)")

    def differentiable_steps(self, projected: Tensor, continues: Tensor, *states: Tensor) -> Sequence[Tensor]:
        """`steps` with a fast backward pass."""
        return self.steps(projected, continues, *states)


class LSTM(Recurrent):
    gates = 4
    parts = ("hidden", "cell")

    def step(self, projected: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        hidden, cell = states
        return lstm_step(projected, hidden, cell, self.weight)[:2]

    def differentiable_steps(self, projected: Tensor, continues: Tensor, *states: Tensor) -> Sequence[Tensor]:
        outputs, cell = LSTMSteps.apply(projected, continues, *states, self.weight)
        return outputs, outputs[-1], cell


class GRU(Recurrent):
    gates = 3
    parts = ("hidden",)

    def __init__(self, inputs: int, size: int, *, copies: int = 1) -> None:
        super().__init__(inputs, size, copies=copies)
        self.bias = nn.Parameter(torch.zeros(copies, 1, size))  # of the candidate's recurrent part

    def step(self, projected: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        (hidden,) = states
        return gru_step(projected, hidden, self.weight, self.bias)[:1]

    def differentiable_steps(self, projected: Tensor, continues: Tensor, *states: Tensor) -> Sequence[Tensor]:
        outputs = GRUSteps.apply(projected, continues, *states, self.weight, self.bias)
        return outputs, outputs[-1]


MEMORIES: dict[MemoryKind, type[Recurrent]] = {"lstm": LSTM, "gru": GRU}
