"""State values, ensembles of critics, and actions as their inputs."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rl_training.models.layers import HiddenSizes, Layers
from rl_training.models.mlp import Norm
from rl_training.models.products import with_full_outputs


def one_hot_choices(actions: Tensor, sizes: Sequence[int]) -> Tensor:
    """One-hot vectors of the choices of MultiDiscrete actions [..., choices], concatenated: [..., sum(sizes)]."""
    # `one_hot` of PyTorch reads values and cannot be traced.
    choices = zip(actions.unbind(-1), sizes, strict=True)
    hot = [each.unsqueeze(-1) == torch.arange(size, device=each.device) for each, size in choices]
    return torch.cat(hot, -1).long()


class StateValue(nn.Module):
    """V(s), [rows]."""

    def __init__(self, obs_dim: int, hidden_sizes: HiddenSizes, *, layer_norm: bool = False) -> None:
        super().__init__()
        self.net = Layers.of(hidden_sizes).from_obs(obs_dim, 1, layer_norm=layer_norm)

    def forward(self, obs: Tensor) -> Tensor:
        return self.net(obs).squeeze(-1)


class Critic(nn.Module):
    """Q(s, a) of `copies` independent networks, [copies, rows]; custom features are shared by the copies."""

    def __init__(
        self, obs_dim: int, action_dim: int, hidden_sizes: HiddenSizes, *, copies: int = 2, layer_norm: Norm = False,
        outputs: int = 1,
    ) -> None:  # fmt: skip
        super().__init__()
        layers = Layers.of(hidden_sizes).for_critics()
        self.copies = copies
        self.features, width = layers.features(obs_dim)
        self.net = layers.network(width + action_dim, outputs, copies=copies, layer_norm=layer_norm)

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        x = torch.cat([self.features(obs), actions], -1)
        rows, copies = x.flatten(0, -2), len(next(self.net.parameters()))  # REDQ passes parameters of fewer copies
        return self.net(rows.expand(copies, *rows.shape)).view(copies, *x.shape[:-1])

    def each(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Q(s, a) where each copy has its own actions [copies, rows, dims]; [copies, rows]."""
        features = self.features(obs)
        x = torch.cat([features.expand(len(actions), *features.shape), actions], -1)
        return self.net(x).squeeze(-1)


class DiscreteCritic(nn.Module):
    """Q(s, a) of Discrete actions by `copies` independent networks with one output per action, [copies, rows].

    An `encoder` with `obs_dim` features is shared by the copies.
    """

    def __init__(
        self, obs_dim: int, actions: int, hidden_sizes: HiddenSizes, *, copies: int = 2,
        encoder: nn.Module | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        layers = Layers.of(hidden_sizes).for_critics()
        self.copies = copies
        self.features, width = layers.features(obs_dim) if encoder is None else (encoder, obs_dim)
        self.net = layers.network(width, actions, copies=copies)

    def values(self, obs: Tensor) -> Tensor:
        """Q(s, .), [copies, rows, actions]."""
        x = self.features(obs)
        return with_full_outputs(self.net, x.expand(self.copies, *x.shape))

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        values = self.values(obs)
        return values.gather(-1, actions.expand(self.copies, -1).unsqueeze(-1)).squeeze(-1)
