"""Float32 or float64 for everything that PyTorch computes; used on both sides of a comparison."""

from __future__ import annotations

from typing import Any

import torch

Tensor: Any = torch.Tensor
DTYPES = {32: torch.float32, 64: torch.float64}
CONVERSIONS = {32: Tensor.float, 64: Tensor.double}


def use_precision(bits: int) -> None:
    """Also where a library asks for float32 by `Tensor.float` or `torch.float`."""
    torch.set_default_dtype(DTYPES[bits])
    Tensor.float, torch.float = CONVERSIONS[bits], DTYPES[bits]


def converted(columns: dict[str, Any]) -> dict[str, Any]:
    """Arrays with their floats in the precision in use."""
    name = str(torch.get_default_dtype()).removeprefix("torch.")
    return {key: column.astype(name) if column.dtype.kind == "f" else column for key, column in columns.items()}
