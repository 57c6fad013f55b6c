"""Termination conditions of well-known environments, computed from observations for use with learned models."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

Rule = Callable[[Tensor], Tensor]  # next observations [rows, features] -> terminated [rows]

# Prefixes of options that change a rule.
CHANGED_BY = ("healthy_", "terminate_when_unhealthy", "exclude_current_positions", "xml_file")


def never(obs: Tensor) -> Tensor:
    return torch.zeros(obs.shape[:-1], dtype=torch.bool, device=obs.device)


def hopper(obs: Tensor) -> Tensor:
    height, angle = obs[..., 0], obs[..., 1]
    sane = (obs[..., 1:].abs() < 100).all(-1)
    return ~(sane & (height > 0.7) & (angle.abs() < 0.2))


def walker2d(obs: Tensor) -> Tensor:
    height, angle = obs[..., 0], obs[..., 1]
    return ~((height > 0.8) & (height < 2.0) & (angle.abs() < 1.0))


def ant(obs: Tensor) -> Tensor:
    height = obs[..., 0]
    return ~(obs.isfinite().all(-1) & (height >= 0.2) & (height <= 1.0))


def humanoid(obs: Tensor) -> Tensor:
    height = obs[..., 0]
    return ~((height > 1.0) & (height < 2.0))


def inverted_pendulum(obs: Tensor) -> Tensor:
    return ~(obs.isfinite().all(-1) & (obs[..., 1].abs() <= 0.2))


def inverted_double_pendulum(obs: Tensor) -> Tensor:
    sin_1, sin_2, cos_1, cos_2 = obs[..., 1:5].unbind(-1)
    tip = 0.6 * (cos_1 + cos_1 * cos_2 - sin_1 * sin_2)  # height of the second pole's tip
    return ~(tip > 1)


RULES: dict[str, Rule] = {
    "Ant": ant,
    "Hopper": hopper,
    "Humanoid": humanoid,
    "InvertedDoublePendulum": inverted_double_pendulum,
    "InvertedPendulum": inverted_pendulum,
    "Walker2d": walker2d,
    **dict.fromkeys(("HalfCheetah", "Pendulum", "Pusher", "Reacher", "Swimmer"), never),
}


def termination_rule(env_id: str | None, env_kwargs: Mapping[str, Any] | None = None) -> Rule | None:
    """Returns the rule of this environment, or None if it is unknown or an option changes it."""
    if env_id is None or any(name.startswith(CHANGED_BY) for name in env_kwargs or {}):
        return None
    return RULES.get(env_id.rsplit("-v", 1)[0])
