"""Weights and features of unit norm."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

EPSILON = 1e-8  # smallest norm that a vector is divided by


def unit_vectors(x: Tensor) -> Tensor:
    """x / |x|, along the last axis."""
    return normalize(x, dim=-1, eps=EPSILON)


@torch.no_grad()
def project_(weight: Tensor, axis: int) -> None:
    """Divides a weight by its norm along an axis, in place."""
    weight.div_(torch.linalg.vector_norm(weight, dim=axis, keepdim=True).clamp_min(EPSILON))


class UnitLinear(nn.Module):
    """Linear layer without bias, whose outputs have weight vectors of unit norm.

    `Updater` projects the weights of every module with a `unit_norm_axis` after each step of the optimizer.
    """

    unit_norm_axis = -2  # of `weight` [..., fan_in, fan_out]; counted from the end, because populations add an axis

    def __init__(self, fan_in: int, fan_out: int, copies: int | None = None) -> None:
        super().__init__()
        weights = [nn.init.orthogonal_(torch.empty(fan_in, fan_out)) for _ in range(copies or 1)]
        self.weight = nn.Parameter(weights[0] if copies is None else torch.stack(weights))
        project_(self.weight, self.unit_norm_axis)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


def unit_norm_axes(module: Any) -> dict[str, int]:
    """The axis of each weight that is projected, by parameter name."""
    found = ((name, getattr(part, "unit_norm_axis", None)) for name, part in module.named_modules())
    return {f"{name}.weight": axis for name, axis in found if axis is not None}
