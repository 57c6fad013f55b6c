"""Networks that give a value for each of a few actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
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


class ValuesOfBoxActions(nn.Module):
    """Values [rows, choices] of given actions [rows, choices, action_dim]."""

    def __init__(self, spec: EnvSpec, hidden_sizes: Sequence[int] = (256, 256)) -> None:
        super().__init__()
        self.encoder, features = encoder_for(spec)
        self.net = mlp((features + spec.action_dim, *hidden_sizes, 1), layer_norm=True)

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        features = self.encoder(obs).unsqueeze(1).expand(-1, actions.shape[1], -1)
        values: Tensor = self.net(torch.cat([features, actions], -1))
        return values.squeeze(-1)


class ValuesOfDiscreteActions(nn.Module):
    """Values [rows, choices] of given actions [rows, choices]."""

    def __init__(self, spec: EnvSpec, hidden_sizes: Sequence[int] = (256, 256)) -> None:
        super().__init__()
        self.encoder, features = encoder_for(spec)
        self.net = mlp((features, *hidden_sizes, spec.action_dim), layer_norm=True)

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        values: Tensor = self.net(self.encoder(obs))
        return values.gather(-1, actions)


class FQEModel(nn.Module):
    """The action values of someone else's policy; layer norms keep them from running off where data are thin."""

    def __init__(self, spec: EnvSpec, hidden_sizes: Sequence[int] = (256, 256)) -> None:
        super().__init__()
        self.obs_shape, self.obs_dtype = spec.obs_shape, spec.obs_dtype
        values = ValuesOfDiscreteActions if spec.action_kind == "discrete" else ValuesOfBoxActions
        self.q: nn.Module = values(spec, hidden_sizes)

    @classmethod
    def build(cls, spec: EnvSpec, config: Any) -> FQEModel:
        return cls(spec, config.hidden_sizes)
