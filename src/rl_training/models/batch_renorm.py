"""Batch renormalisation (Ioffe, 2017, arXiv:1702.03275), and networks that use it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn

from rl_training.models.heads import SquashedGaussian
from rl_training.models.layers import HiddenSizes, Layers
from rl_training.models.mlp import EnsembleLinear
from rl_training.models.simba import SimbaBlock, SimbaTrunk
from rl_training.models.values import Critic

MOMENTUM, EPSILON, R_MAX, D_MAX = 0.99, 1e-3, 3.0, 5.0
WARM_UP = 100_000  # updates of plain batch normalisation, as in the authors' code of CrossQ


class BatchRenorm(nn.Module):
    """Normalises [..., rows, width] by running statistics, or by those of the batch (`with_statistics`)."""

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, width: int, copies: int | None = None) -> None:
        super().__init__()
        shape = (width,) if copies is None else (copies, 1, width)
        self.weight, self.bias = nn.Parameter(torch.ones(shape)), nn.Parameter(torch.zeros(shape))
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("var", torch.ones(shape))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) * (self.var + EPSILON).rsqrt() * self.weight + self.bias

    def with_statistics(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Output by the statistics of the batch, corrected towards the running ones; and the new running ones."""
        x = x.float()
        mean, var = x.mean(-2, keepdim=True), x.var(-2, keepdim=True, unbiased=False)
        seen_mean, seen_var = mean.detach().view_as(self.mean), var.detach().view_as(self.var)
        std, running_std = (seen_var + EPSILON).sqrt(), (self.var + EPSILON).sqrt()
        r = (std / running_std).clamp(1 / R_MAX, R_MAX)
        d = ((seen_mean - self.mean) / running_std).clamp(-D_MAX, D_MAX)
        is_warm = self.count >= WARM_UP
        r, d = torch.where(is_warm, r, 1.0), torch.where(is_warm, d, 0.0)
        normalized = (x - mean) * (var + EPSILON).rsqrt() * r + d
        new = {
            "mean": torch.lerp(seen_mean, self.mean, MOMENTUM),
            "var": torch.lerp(seen_var, self.var, MOMENTUM),
            "count": self.count + 1,
        }
        return normalized * self.weight + self.bias, new


class RenormBlock(nn.Module):
    """Residual block of SimBa with batch renormalisation instead of layer norm."""

    def __init__(self, block: SimbaBlock, copies: int | None = None) -> None:
        super().__init__()
        self.norm, self.body = BatchRenorm(block.width, copies), block.body

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(self.norm(x))

    def with_statistics(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        normalized, new = self.norm.with_statistics(x)
        return x + self.body(normalized), {f"norm.{name}": value for name, value in new.items()}


def renorm_trunk(trunk: SimbaTrunk, inputs: int, copies: int | None) -> list[nn.Module]:
    """Batch renormalisation of the inputs and the layers of a SimBa trunk, except its last layer norm."""
    first, blocks = BatchRenorm(inputs, copies), cast(Iterable[SimbaBlock], trunk.blocks)
    last: list[Any] = [block.body[-1] for block in blocks]
    for layer in (first, trunk.embed, *last):
        layer.bias.requires_grad_(False)  # stays 0, because the means of all later normalisations cancel it
    return [first, trunk.embed, *(RenormBlock(block, copies) for block in blocks)]


class RenormNetwork(nn.Sequential):
    """A network with batch renormalisation of its inputs and after each hidden layer."""

    @classmethod
    def around(cls, network: nn.Sequential, inputs: int, copies: int | None = None) -> RenormNetwork:
        """Puts the normalisation in front of every linear layer of a network; in SimBa's it replaces layer norms."""
        layers: list[nn.Module] = []
        for layer in network:
            if isinstance(layer, nn.Linear | EnsembleLinear):
                layers.append(BatchRenorm(layer.weight.shape[-2 if copies else -1], copies))
            layers += renorm_trunk(layer, inputs, copies) if isinstance(layer, SimbaTrunk) else [layer]
        if not isinstance(layers[0], BatchRenorm):  # hidden layers of the user's own
            layers.insert(0, BatchRenorm(inputs, copies))
        return cls(*layers)

    def with_statistics(self, x: Tensor, prefix: str) -> tuple[Tensor, dict[str, Tensor]]:
        """Output by the statistics of the batch, and new values of the buffers by name."""
        buffers: dict[str, Tensor] = {}
        for index, layer in enumerate(self):
            if isinstance(layer, (BatchRenorm, RenormBlock)):
                x, new = layer.with_statistics(x)
                buffers |= {f"{prefix}{index}.{name}": value for name, value in new.items()}
            else:
                x = layer(x)
        return x, buffers


class RenormPolicy(nn.Module):
    """SAC's policy with batch renormalisation."""

    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: HiddenSizes) -> None:
        super().__init__()
        layers = Layers.of(hidden_sizes)
        self.features, width = layers.features(obs_dim)
        self.net = RenormNetwork.around(layers.network(width, 2 * action_dim), width)

    def forward(self, obs: Tensor) -> SquashedGaussian:
        return _policy(self.net(self.features(obs)))

    def with_statistics(self, obs: Tensor, prefix: str) -> tuple[SquashedGaussian, dict[str, Tensor]]:
        outputs, buffers = self.net.with_statistics(self.features(obs), f"{prefix}net.")
        return _policy(outputs), buffers


def _policy(outputs: Tensor) -> SquashedGaussian:
    mean, log_std = outputs.float().chunk(2, -1)
    return SquashedGaussian(mean, log_std.clamp(-20, 2))


class RenormCritic(Critic):
    """Critics with batch renormalisation."""

    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: HiddenSizes) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes)
        inputs = Layers.of(hidden_sizes).features(obs_dim)[1] + action_dim
        self.net = RenormNetwork.around(self.net, inputs, self.copies)

    def with_statistics(self, obs: Tensor, actions: Tensor, prefix: str) -> tuple[Tensor, dict[str, Tensor]]:
        x = torch.cat([self.features(obs), actions], -1)
        q, buffers = self.net.with_statistics(x.expand(self.copies, *x.shape), f"{prefix}net.")
        return q.squeeze(-1), buffers
