"""Networks that give a value for each of a few actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from rl_training.models.encoders import encoder_for
from rl_training.models.mlp import mlp
from rl_training.types import EnvSpec


class QNetwork(nn.Module):
    """Action values [rows, actions]; dueling splits them into a state value and advantages of mean zero."""

    def __init__(self, spec: EnvSpec, hidden_sizes: Sequence[int] = (256, 256), *, dueling: bool = False) -> None:
        super().__init__()
        self.encoder, features = encoder_for(spec)
        self.advantage = mlp((features, *hidden_sizes, spec.action_dim))
        self.value = mlp((features, *hidden_sizes, 1)) if dueling else None

    def forward(self, obs: Tensor) -> Tensor:
        features = self.encoder(obs)
        values: Tensor = self.advantage(features)
        if self.value is None:
            return values
        state_value: Tensor = self.value(features)
        return state_value + values - values.mean(-1, keepdim=True)


class DQNModel(nn.Module):
    def __init__(self, spec: EnvSpec, hidden_sizes: Sequence[int] = (256, 256), *, dueling: bool = False) -> None:
        super().__init__()
        self.obs_shape = spec.obs_shape
        self.q = QNetwork(spec, hidden_sizes, dueling=dueling)

    @classmethod
    def build(cls, spec: EnvSpec, config: Any) -> DQNModel:
        return cls(spec, config.hidden_sizes, dueling=config.dueling)
