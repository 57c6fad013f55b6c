"""State values and ensembles of critics."""

import torch
from torch import Tensor, nn

from rl_training.models.layers import HiddenSizes, Layers


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
