"""Adam for a group of parameters: torch's fused kernel without the bookkeeping, which costs small networks dear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rl_training.types import ParameterGroup

KERNELS = {"adam": torch._fused_adam_, "adamw": torch._fused_adamw_}


class _Moved(NamedTuple):
    """Parameters that have a gradient in one phase, and what moves with them."""

    params: list[Tensor]
    means: list[Tensor]
    squares: list[Tensor]
    counts: list[Tensor]
    ones: Tensor  # [parameters of the group], 1 for each of these


class Adam:
    """`torch.optim.Adam` (or AdamW) to the bit; parameters without a gradient keep still, and so does their count."""

    def __init__(self, params: Sequence[Tensor], group: ParameterGroup) -> None:
        self.params, self.group, self.kernel = list(params), group, KERNELS[group.kind]
        device = self.params[0].device if self.params else None
        self.rate = torch.tensor(group.learning_rate, device=device)  # a tensor, so that a schedule can write it
        self.counts = torch.zeros(len(self.params), device=device)  # one tensor, so that one addition moves them all
        self.means = [torch.zeros_like(parameter) for parameter in self.params]
        self.squares = [torch.zeros_like(parameter) for parameter in self.params]
        self._moved: dict[tuple[int, ...], _Moved] = {}

    def zero_grad(self) -> None:
        for parameter in self.params:
            parameter.grad = None

    @torch.no_grad()
    def step(self, halted: Tensor | None = None) -> None:
        """A move by the gradients, or none at all where `halted` is 1, which the kernel itself looks at."""
        gradients = {index: p.grad for index, p in enumerate(self.params) if p.grad is not None}
        if not gradients:
            return
        which = tuple(gradients)
        moved = self._moved.get(which) or self._moved.setdefault(which, self._select(which))
        self.counts.add_(moved.ones if halted is None else moved.ones * (1 - halted))
        self.kernel(
            moved.params, list(gradients.values()), moved.means, moved.squares, [], moved.counts,
            lr=self.rate, beta1=0.9, beta2=0.999, weight_decay=self.group.weight_decay, eps=self.group.eps,
            amsgrad=False, maximize=False, found_inf=halted,
        )  # fmt: skip

    def state(self) -> list[dict[str, Tensor]]:
        """By parameter, under torch's names; the tensors are those in use."""
        return [
            {"step": count, "exp_avg": mean, "exp_avg_sq": square}
            for count, mean, square in zip(self.counts.unbind(), self.means, self.squares, strict=True)
        ]

    def _select(self, which: tuple[int, ...]) -> _Moved:
        ones = torch.zeros_like(self.counts)
        ones[list(which)] = 1
        held = (self.params, self.means, self.squares, self.counts.unbind())
        params, means, squares, counts = ([each[index] for index in which] for each in held)
        return _Moved(params, means, squares, counts, ones)
