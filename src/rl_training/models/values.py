"""State values and ensembles of critics."""

from typing import Any

import torch
from torch import Tensor, nn

from rl_training.models.layers import HiddenSizes, Layers
from rl_training.models.mlp import EnsembleLinear
from rl_training.models.products import ensemble_linear, ensemble_product


class StateValue(nn.Module):
    """V(s), [rows]."""

    def __init__(self, obs_dim: int, hidden_sizes: HiddenSizes, *, layer_norm: bool = False) -> None:
        super().__init__()
        self.net = Layers.of(hidden_sizes).from_obs(obs_dim, 1, layer_norm=layer_norm)

    def forward(self, obs: Tensor) -> Tensor:
        return self.net(obs).squeeze(-1)


class Critic(nn.Module):
    """Q(s, a) of `copies` independent networks, [copies, rows]; features of your own are shared by the copies."""

    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: HiddenSizes, *, copies: int = 2) -> None:
        super().__init__()
        layers = Layers.of(hidden_sizes)
        self.features, width = layers.features(obs_dim)
        self.net = layers.network(width + action_dim, 1, copies=copies)

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        x = torch.cat([self.features(obs), actions], -1)
        rows, copies = x.flatten(0, -2), len(next(self.net.parameters()))  # REDQ passes parameters of fewer copies
        return self.net(rows.expand(copies, *rows.shape)).view(copies, *x.shape[:-1])


def sampled_q(critic: Any, obs: Tensor, actions: Tensor) -> Tensor:
    """Q(s, a) of several actions [samples, rows, dims] for each observation [rows, ...]; [copies, samples, rows]."""
    layers = critic.net if isinstance(critic, Critic) else None
    if obs.is_cuda and isinstance(layers, nn.Sequential) and isinstance(layers[0], EnsembleLinear):
        return shared_first_layer(critic.features(obs), actions, layers)
    values: Tensor = critic(obs.expand(len(actions), *obs.shape), actions)
    return values


def shared_first_layer(features: Tensor, actions: Tensor, layers: nn.Sequential) -> Tensor:
    """`layers` for each pair, where the product with the features is computed once for all samples."""
    first: Any = layers[0]
    weights = first.weight.split([features.shape[-1], actions.shape[-1]], 1)
    copies, lead = len(first.weight), actions.shape[:-1]
    by_obs = ensemble_linear(features.expand(copies, *features.shape), weights[0], first.bias)
    by_action = ensemble_product(actions.flatten(0, 1).expand(copies, -1, -1), weights[1])
    hidden = by_obs.unsqueeze(1) + by_action.unflatten(1, lead)
    values: Tensor = layers[1:](hidden.flatten(1, 2))
    return values.view(copies, *lead)
