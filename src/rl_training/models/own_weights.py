"""Checks that a network of the user can be trained: PyTorch knows its weights, and gradients reach them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from rl_training.messages import print_warning


def require_known_weights(module: nn.Module, name: str) -> None:
    """Raises ValueError for weights that are not among the parameters, such as those of layers in a plain list."""
    known = {id(each) for each in module.parameters()}
    for part in module.modules():
        for attribute, value in vars(part).items():
            if isinstance(part, nn.RNNBase) and attribute == "_flat_weights":  # PyTorch's own list, which it renews
                continue
            if any(id(each) not in known for each in _weights(value)):
                raise ValueError(
                    f"network {name} keeps weights in {type(part).__name__}.{attribute}, where PyTorch does not find "
                    "them, so they would be neither trained nor saved; use torch.nn.ModuleList, ModuleDict or "
                    "ParameterList in place of a list or dict, and torch.nn.Parameter in place of a tensor; freeze "
                    "weights that are hidden on purpose with requires_grad_(False)"
                )


def _weights(value: Any) -> Iterator[Tensor]:
    """Yields the weights in an attribute that require gradients."""
    if isinstance(value, nn.Module):
        yield from (each for each in value.parameters() if each.requires_grad)
    elif isinstance(value, Tensor):
        yield from [value] if value.requires_grad and value.is_leaf else []
    elif isinstance(value, Mapping | list | tuple | set):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _weights(each)


def warn_without_gradients(module: nn.Module, inputs: Any, name: str) -> None:
    """Warns if no gradient can reach the weights; random streams stay as they are."""
    if torch.is_inference_mode_enabled() or not any(each.requires_grad for each in module.parameters()):
        return
    with torch.enable_grad(), torch.random.fork_rng(devices=()):
        outputs = module(inputs)
    if not outputs.requires_grad:
        _warn_once(
            f"network {name} returns an output without a gradient, so its weights are not trained; remove "
            "detach() and no_grad() from its forward, or freeze its weights with requires_grad_(False)"
        )


@cache
def _warn_once(message: str) -> None:
    print_warning(message)
