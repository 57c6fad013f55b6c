"""Adam and LaProp for a group of parameters, without the bookkeeping, which costs small networks dear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rl_training.types import ParameterGroup

LEAST_NORM = 1e-3  # of a tensor, as the ratio of its gradient to it is taken: those that begin at zero must move too


def laprop_(
    params: list[Tensor], grads: list[Tensor], means: list[Tensor], squares: list[Tensor], _: list[Tensor],
    counts: list[Tensor], *, lr: Tensor, beta1: float, beta2: float, eps: float,
    found_inf: Tensor | None, **unused: Any,
) -> None:  # fmt: skip
    """LaProp (Ziyin et al., 2020), called as the fused kernels are: gradients are scaled first, then averaged."""
    if found_inf is not None:
        raise ValueError("laprop cannot be halted; a learner that halts needs adam or adamw")
    count = torch.stack(counts)
    torch._foreach_lerp_(squares, torch._foreach_mul(grads, grads), 1 - beta2)
    scales = torch._foreach_div(squares, (1 - beta2**count).unbind())
    torch._foreach_sqrt_(scales)
    torch._foreach_add_(scales, eps)
    torch._foreach_lerp_(means, torch._foreach_div(grads, scales), 1 - beta1)
    steps = torch._foreach_mul(means, (-lr / (1 - beta1**count)).unbind())
    torch._foreach_add_(params, steps)


KERNELS: dict[str, Any] = {"adam": torch._fused_adam_, "adamw": torch._fused_adamw_, "laprop": laprop_}


class _Moved(NamedTuple):
    """Parameters that have a gradient in one phase, and what moves with them."""

    params: list[Tensor]
    means: list[Tensor]
    squares: list[Tensor]
    counts: list[Tensor]
    ones: Tensor  # [parameters of the group], 1 for each of these


def clip_to_weights(params: list[Tensor], grads: list[Tensor], ratio: float) -> None:
    """Shrink each gradient to a norm of at most this share of its tensor's (Brock et al., 2021, by whole tensors)."""
    weights, norms = torch.stack(torch._foreach_norm(params)), torch.stack(torch._foreach_norm(grads))
    shares = (ratio * weights.clamp(min=LEAST_NORM) / norms).clamp(max=1.0)
    torch._foreach_mul_(grads, shares.unbind())


class Optimizer:
    """`torch.optim.Adam` (or AdamW) to the bit, or LaProp; what has no gradient keeps still, and so does its count."""

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
        rate = self.rate
        if self.group.warm_up:
            rate = rate * (self.counts.amax() / self.group.warm_up).clamp(max=1.0)
        if self.group.max_grad_ratio is not None:
            clip_to_weights(moved.params, list(gradients.values()), self.group.max_grad_ratio)
        self.kernel(
            moved.params, list(gradients.values()), moved.means, moved.squares, [], moved.counts,
            lr=rate, beta1=0.9, beta2=0.999, weight_decay=self.group.weight_decay, eps=self.group.eps,
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
