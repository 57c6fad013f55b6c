"""Temperature of the maximum-entropy algorithms: its options, its parameter and its loss."""

import math
from typing import Literal

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor, nn

from rl_training.algorithms.core.config import AlgorithmConfig


class TemperatureConfig(AlgorithmConfig):
    temperature: PositiveFloat = Field(1.0, description="entropy coefficient alpha; its initial value if tuned")
    tune_temperature: bool = Field(True, description="tune the temperature towards target_entropy")
    target_entropy: float | Literal["auto"] = Field(
        "auto", description="auto: minus the number of action dimensions, or 0.3 * log(valid actions) if Discrete"
    )


def temperature_loss(log_alpha: Tensor, log_prob: Tensor, target_entropy: Tensor | float) -> Tensor:
    """Temperature loss: mean of -log alpha * (log pi(a|s) + target entropy)."""
    return -(log_alpha * (log_prob.detach() + target_entropy)).mean()


def log_temperature(config: TemperatureConfig) -> nn.Parameter:
    """Returns the parameter log alpha, which is trained if the temperature is tuned."""
    return nn.Parameter(torch.tensor(math.log(config.temperature)), requires_grad=config.tune_temperature)


def box_target_entropy(config: TemperatureConfig, action_dim: int) -> float | None:
    """Target entropy of a policy for Box actions; None if the temperature is fixed."""
    if not config.tune_temperature:
        return None
    return -float(action_dim) if config.target_entropy == "auto" else config.target_entropy
