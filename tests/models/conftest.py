"""Random weights for networks that are compared with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn


@pytest.fixture
def scatter() -> Callable[[nn.Module], dict[str, Any]]:
    """Gives every parameter, scales and biases included, a random value; returns them as float64 arrays."""

    def scattered(module: nn.Module) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        return {name: parameter.detach().double().numpy() for name, parameter in module.named_parameters()}

    return scattered
