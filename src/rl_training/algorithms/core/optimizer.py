"""Adam, AdamW, RAdam and LaProp without the overhead of `torch.optim`, which is large for small networks."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rl_training.types import ParameterGroup

MIN_NORM = 1e-3  # lower bound of a parameter's norm in gradient clipping, so that zero parameters can change


def laprop_(
    params: list[Tensor], grads: list[Tensor], means: list[Tensor], squares: list[Tensor], _: list[Tensor],
    counts: list[Tensor], *, lr: Tensor, beta1: float, beta2: float, eps: float, **unused: Any,
) -> None:  # fmt: skip
    """LaProp (Ziyin et al., 2020, arXiv:2002.04839): Adam that averages normalised gradients.

    Called like `torch._fused_adam_`, as are the functions below.
    """
    count = torch.stack(counts)
    torch._foreach_lerp_(squares, torch._foreach_mul(grads, grads), 1 - beta2)
    scales = torch._foreach_div(squares, (1 - beta2**count).unbind())
    torch._foreach_sqrt_(scales)
    torch._foreach_add_(scales, eps)
    torch._foreach_lerp_(means, torch._foreach_div(grads, scales), 1 - beta1)
    steps = torch._foreach_mul(means, (-lr / (1 - beta1**count)).unbind())
    torch._foreach_add_(params, steps)


def adam_(
    params: list[Tensor], grads: list[Tensor], means: list[Tensor], squares: list[Tensor], _: list[Tensor],
    counts: list[Tensor], *, lr: Tensor, beta1: float, beta2: float, eps: float, **unused: Any,
) -> None:  # fmt: skip
    """Adam without weight decay in single operations, which `torch.compile` fuses."""
    count = torch.stack(counts).double()  # 1 - beta2 would keep four digits in float32
    torch._foreach_lerp_(means, grads, 1 - beta1)
    torch._foreach_lerp_(squares, torch._foreach_mul(grads, grads), 1 - beta2)
    scales = torch._foreach_div(torch._foreach_sqrt(squares), (1 - beta2**count).sqrt().float().unbind())
    torch._foreach_add_(scales, eps)
    steps = torch._foreach_mul(torch._foreach_div(means, scales), (-lr / (1 - beta1**count)).float().unbind())
    torch._foreach_add_(params, steps)


def radam_(
    params: list[Tensor], grads: list[Tensor], means: list[Tensor], squares: list[Tensor], maxima: list[Tensor],
    counts: list[Tensor], *, lr: Tensor, beta1: float, beta2: float, **options: Any,
) -> None:  # fmt: skip
    """RAdam (Liu et al., 2020, arXiv:1908.03265): Adam with a rectified learning rate, by its fused kernel.

    In the first steps (rho <= 5), when the average of squares varies too much, parameters follow the mean gradient.
    """
    count = torch.stack(counts).amax().double()  # all parameters are updated together
    decay, rho_inf = beta2**count, 2 / (1 - beta2) - 1
    rho = rho_inf - 2 * count * decay / (1 - decay)
    scale = (rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho)
    rate = ((rho > 5) * lr * scale.clamp_min(0).sqrt()).float()
    torch._fused_adam_(params, grads, means, squares, maxima, counts, lr=rate, beta1=beta1, beta2=beta2, **options)
    plain_rate = ((rho <= 5) * -lr / (1 - beta1**count)).float()
    torch._foreach_add_(params, torch._foreach_mul(means, plain_rate))


KERNELS: dict[str, Any] = {
    "adam": torch._fused_adam_, "adamw": torch._fused_adamw_, "radam": radam_, "laprop": laprop_
}  # fmt: skip
CAN_SKIP = ("adam", "adamw")


PIECES = 32  # tensors that one launch of a fused kernel takes
MIN_PIECE = 4096  # entries
MAX_PIECE = 65_536  # largest number of entries that a fused kernel gives to one block


def piece_size(tensors: Sequence[Tensor]) -> int | None:
    """Entries of a piece, a power of two, so that small networks use more cores of a GPU; None: do not cut."""
    if not all(tensor.is_contiguous() for tensor in tensors):
        return None
    share = sum(tensor.numel() for tensor in tensors) / PIECES
    size = max(1 << math.ceil(math.log2(max(share, 1))), MIN_PIECE)
    return size if size < MAX_PIECE else None


def pieces(tensors: Sequence[Tensor], size: int | None) -> list[Tensor]:
    """Cuts tensors into views of at most `size` entries; None: the tensors as they are."""
    if size is None:
        return list(tensors)
    return [piece for tensor in tensors for piece in tensor.detach().reshape(-1).split(size)]


class _Selected(NamedTuple):
    """Parameters with a gradient in one phase, and their optimizer state, in pieces on a GPU."""

    params: list[Tensor]
    means: list[Tensor]
    squares: list[Tensor]
    counts: list[Tensor]
    ones: Tensor  # [parameters of the group], 1 for each of these
    piece: int | None  # entries of a piece


def clip_to_weights(params: list[Tensor], grads: list[Tensor], ratio: float, *, by_member: bool = False) -> None:
    """Adaptive gradient clipping per tensor (Brock et al., 2021, arXiv:2102.06171): |grad| <= ratio * |parameter|.

    `by_member`: per slice along the leading axis, because each is a tensor of another member.
    """
    if by_member:
        params, grads = ([member for each in tensors for member in each.unbind()] for tensors in (params, grads))
    weights, norms = torch.stack(torch._foreach_norm(params)), torch.stack(torch._foreach_norm(grads))
    scales = (ratio * weights.clamp(min=MIN_NORM) / norms).clamp(max=1.0)
    torch._foreach_mul_(grads, scales.unbind())


@torch.no_grad()
def clip_gradients(params: Sequence[Tensor], max_norm: float, *, by_member: bool, reads_values: bool = True) -> None:
    """Clips the norm of all gradients together, or of each member's gradients."""
    grads = [parameter.grad for parameter in params if parameter.grad is not None]
    if not grads:
        return
    if by_member:
        squares = torch.stack([grad.reshape(len(grad), -1).square().sum(1) for grad in grads]).sum(0)
        scale = (max_norm / (squares.sqrt() + 1e-6)).clamp(max=1.0)
        for grad in grads:
            grad.mul_(scale.view(-1, *[1] * (grad.dim() - 1)))
        return
    norms = torch._foreach_norm(grads) if reads_values else [grad.square().sum().sqrt() for grad in grads]
    scale = (max_norm / (torch.linalg.vector_norm(torch.stack(norms)) + 1e-6)).clamp(max=1.0)
    if scale.is_cuda or not reads_values or scale.item() != 1:  # on the CPU, reading takes less time than multiplying
        torch._foreach_mul_(grads, scale)


class Optimizer:
    """Adam or AdamW, bit for bit as in `torch.optim`, RAdam or LaProp. Parameters without a gradient are skipped.

    With `compile`, Adam is a generated kernel, equal to rounding and faster on a GPU; its steps cannot be skipped.
    """

    def __init__(
        self, params: Sequence[Tensor], group: ParameterGroup, *, compile: bool = False, by_member: bool = False
    ) -> None:
        self.params, self.group, self.kernel, self.by_member = list(params), group, KERNELS[group.kind], by_member
        self.compiled = compile and group.kind == "adam" and not group.weight_decay
        if self.compiled:
            self.kernel = torch.compile(adam_, fullgraph=True, dynamic=False)
        device = self.params[0].device if self.params else None
        self.rate = torch.tensor(group.learning_rate, device=device)  # a tensor, so that captured updates see changes
        self.counts = torch.zeros(len(self.params), device=device)  # one tensor, so that one addition updates all
        self.means = [torch.zeros_like(parameter) for parameter in self.params]
        self.squares = [torch.zeros_like(parameter) for parameter in self.params]
        self._selected: dict[tuple[int, ...], _Selected] = {}

    def zero_grad(self) -> None:
        for parameter in self.params:
            parameter.grad = None

    @torch.no_grad()
    def step(self, skip: Tensor | None = None) -> None:
        """Updates the parameters; if `skip` is 1, the kernel changes nothing."""
        gradients = {index: p.grad for index, p in enumerate(self.params) if p.grad is not None}
        if not gradients:
            return
        if skip is not None and self.group.kind not in CAN_SKIP:
            raise ValueError(
                f'{self.group.kind} cannot skip updates. A learner with the buffer "halted" needs adam or adamw'
            )
        indices = tuple(gradients)
        selected = self._selected.get(indices) or self._selected.setdefault(indices, self._select(indices))
        self.counts.add_(selected.ones if skip is None else selected.ones * (1 - skip))
        rate, (beta1, beta2) = self.rate, self.group.betas
        if self.group.warm_up:
            rate = rate * (self.counts.amax() / self.group.warm_up).clamp(max=1.0)
        if (ratio := self.group.max_grad_ratio) is not None:
            params = [self.params[index] for index in indices]
            clip_to_weights(params, [*gradients.values()], ratio, by_member=self.by_member)
        self.kernel(
            selected.params, pieces([*gradients.values()], selected.piece), selected.means, selected.squares, [],
            selected.counts,
            lr=rate, beta1=beta1, beta2=beta2, weight_decay=self.group.weight_decay, eps=self.group.eps,
            amsgrad=False, maximize=False, found_inf=skip,
        )  # fmt: skip

    def state(self) -> list[dict[str, Tensor]]:
        """State per parameter under the names of `torch.optim`; the tensors are not copied."""
        return [
            {"step": count, "exp_avg": mean, "exp_avg_sq": square}
            for count, mean, square in zip(self.counts.unbind(), self.means, self.squares, strict=True)
        ]

    def _select(self, indices: tuple[int, ...]) -> _Selected:
        ones = torch.zeros_like(self.counts)
        ones[list(indices)] = 1
        state = (self.params, self.means, self.squares, self.counts.unbind())
        params, means, squares, counts = ([each[index] for index in indices] for each in state)
        size = piece_size(params) if self._cuts(params) else None
        if size is not None:  # one count for each piece
            counts = [count for count, p in zip(counts, params, strict=True) for _ in range(-(-p.numel() // size))]
        params, means, squares = (pieces(each, size) for each in (params, means, squares))
        return _Selected(params, means, squares, counts, ones, size)

    def _cuts(self, params: list[Tensor]) -> bool:
        fused = self.group.kind != "laprop" and not self.compiled
        return fused and params[0].is_cuda
