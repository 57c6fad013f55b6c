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
    first = critic.net[0] if isinstance(critic, Critic) and isinstance(critic.net, nn.Sequential) else None
    if not (isinstance(first, EnsembleLinear) and obs.is_cuda):
        values: Tensor = critic(obs.expand(len(actions), *obs.shape), actions)
        return values
    features = critic.features(obs)  # the first layer's product with them is computed once for all samples
    weights = first.weight.split([features.shape[-1], actions.shape[-1]], 1)
    copies, samples, rows = len(first.weight), len(actions), len(obs)
    by_obs = ensemble_linear(features.expand(copies, *features.shape), weights[0], first.bias)
    by_action = ensemble_product(actions.flatten(0, 1).expand(copies, -1, -1), weights[1])
    hidden = by_obs.unsqueeze(1) + by_action.unflatten(1, (samples, rows))
    return critic.net[1:](hidden.flatten(1, 2)).view(copies, samples, rows)
