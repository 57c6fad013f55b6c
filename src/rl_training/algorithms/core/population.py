"""Many seeds of one learner as one: parameters on a leading member axis, the program of one mapped over it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from rl_training.types import Action, Batch, Loss

Tensors = dict[str, Tensor]


@torch.no_grad()
def stack_members(learners: Sequence[nn.Module]) -> tuple[Tensors, Tensors]:
    """All members' parameters and buffers, stacked; what each member holds becomes a view of its own slice.

    So a member still acts, is saved and is evaluated like any learner, and always with its newest numbers.
    """
    params = {name: _stack([member.get_parameter(name) for member in learners])
              for name, _ in learners[0].named_parameters()}  # fmt: skip
    buffers = {name: _stack([member.get_buffer(name) for member in learners])
               for name, _ in learners[0].named_buffers()}  # fmt: skip
    for index, member in enumerate(learners):
        for name, together in params.items():
            member.get_parameter(name).data = together.detach()[index]
        for name, together in buffers.items():
            *path, leaf = name.split(".")
            member.get_submodule(".".join(path))._buffers[leaf] = together[index]
    return params, buffers


def _stack(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack([tensor.detach() for tensor in tensors]).requires_grad_(tensors[0].requires_grad)


class Population:
    """The program of one member, run for all of them."""

    def __init__(self, learners: Sequence[Any]) -> None:
        self.program = copy.deepcopy(learners[0]).to("meta")
        self.size = len(learners)
        self.params, self.buffers = stack_members(learners)

    def loss(self, batch: Batch, phase: str = "loss") -> Loss:
        """Of every member on its own rows of the batch: each tensor has a leading member axis."""
        result: Loss = self._mapped(lambda state, rows: self._member(state, rows, phase), batch)
        return result

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action:
        """Actions of every member for its own observations [members, rows, ...]."""
        options = {"deterministic": deterministic, "generator": generator}

        def member(state: Tensors, rows: Tensor) -> tuple[Tensor, Tensors]:
            chosen: Action = self._member(state, rows, "act", **options)
            return chosen.actions, chosen.extras

        actions, extras = self._mapped(member, obs)
        return Action(actions, extras=extras)

    def _member(self, state: Tensors, inputs: Any, phase: str, **options: Any) -> Any:
        # no two parameters of a learner are one, and looking for such takes longer than a small network
        return functional_call(self.program, state, (inputs, phase), options, tie_weights=False)

    def _mapped(self, one: Any, inputs: Any) -> Any:
        return torch.vmap(one, randomness="different")({**self.params, **self.buffers}, inputs)
