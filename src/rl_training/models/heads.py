"""Action distributions and policy heads."""
# `torch.distributions` is not used: it synchronises with the host and cannot sample from a given generator.

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from rl_training.models.layers import HiddenSizes, Layers
from rl_training.models.masks import masked

LOG_SQRT_TWO_PI = 0.5 * math.log(2 * math.pi)


def standard_normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(like.shape, generator=generator, device=like.device, dtype=like.dtype)


def gumbel(shape: Sequence[int], device: torch.device, generator: torch.Generator | None) -> Tensor:
    """Gumbel noise: argmax(log_probs + noise) is a sample of the categorical."""
    uniform = torch.rand(*shape, generator=generator, device=device)
    return -(-uniform.clamp_min(1e-20).log()).log()


def normal_log_prob(x: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Log-density of a diagonal Gaussian: -((x - mean) / std)^2 / 2 - log std - log sqrt(2 pi), summed."""
    return (-0.5 * ((x - mean) * (-log_std).exp()).square() - log_std - LOG_SQRT_TWO_PI).sum(-1)


class Gaussian(NamedTuple):
    """Diagonal Gaussian with unbounded samples."""

    mean: Tensor
    log_std: Tensor

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        return self.mean + self.log_std.exp() * standard_normal(self.mean, generator)

    def mode(self) -> Tensor:
        return self.mean

    def log_prob(self, actions: Tensor) -> Tensor:
        return normal_log_prob(actions, self.mean, self.log_std)

    def entropy(self) -> Tensor:
        return (self.log_std + 0.5 + LOG_SQRT_TWO_PI).expand_as(self.mean).sum(-1)

    def log_prob_and_entropy(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        return self.log_prob(actions), self.entropy()


class SquashedGaussian(NamedTuple):
    """Diagonal Gaussian followed by tanh; samples are in (-1, 1)."""

    mean: Tensor
    log_std: Tensor

    def repeated(self, times: int) -> SquashedGaussian:
        """Repeats the distribution along a new leading axis."""
        return SquashedGaussian(*(each.expand(times, *each.shape) for each in self))

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        return self.sample_with_log_prob(generator)[0]

    def sample_with_log_prob(self, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        raw = self.mean + self.log_std.exp() * standard_normal(self.mean, generator)
        return raw.tanh(), self.raw_log_prob(raw)

    def mode(self) -> Tensor:
        return self.mean.tanh()

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-density of given actions. For samples use `sample_with_log_prob`: atanh is inexact near the bounds."""
        return self.raw_log_prob(actions.clamp(-1 + 1e-6, 1 - 1e-6).atanh())

    def raw_log_prob(self, raw: Tensor) -> Tensor:
        # log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)) is finite for every u
        log_det = 2 * (math.log(2) - raw - softplus(-2 * raw))
        return normal_log_prob(raw, self.mean, self.log_std) - log_det.sum(-1)


class Categorical(NamedTuple):
    """Categorical sampled with the Gumbel-max trick, which needs no host synchronisation."""

    logits: Tensor

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        return (self.logits + gumbel(self.logits.shape, self.logits.device, generator)).argmax(-1)

    def mode(self) -> Tensor:
        return self.logits.argmax(-1)

    def log_prob(self, actions: Tensor) -> Tensor:
        return _select(self.logits.log_softmax(-1), actions)

    def entropy(self) -> Tensor:
        return _entropy(self.logits.log_softmax(-1))

    def log_prob_and_entropy(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = self.logits.log_softmax(-1)
        return _select(log_probs, actions), _entropy(log_probs)


def _select(log_probs: Tensor, actions: Tensor) -> Tensor:
    return log_probs.gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def _entropy(log_probs: Tensor) -> Tensor:
    return -(log_probs.exp() * log_probs).sum(-1)


class MultiCategorical(NamedTuple):
    """Independent categoricals; actions are [rows, choices]."""

    choices: tuple[Categorical, ...]

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        return torch.stack([choice.sample(generator) for choice in self.choices], -1)

    def mode(self) -> Tensor:
        return torch.stack([choice.mode() for choice in self.choices], -1)

    def log_prob(self, actions: Tensor) -> Tensor:
        return self.log_prob_and_entropy(actions)[0]

    def entropy(self) -> Tensor:
        return torch.stack([choice.entropy() for choice in self.choices]).sum(0)

    def log_prob_and_entropy(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        pairs = zip(self.choices, actions.unbind(-1), strict=True)
        log_probs, entropies = zip(*(choice.log_prob_and_entropy(action) for choice, action in pairs), strict=True)
        return torch.stack(log_probs).sum(0), torch.stack(entropies).sum(0)


class Deterministic(NamedTuple):
    actions: Tensor

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        return self.actions

    def mode(self) -> Tensor:
        return self.actions


class BoundedMeanPolicy(nn.Module):
    """Gaussian with a tanh-bounded mean and a state-independent log std (IQL, BC)."""

    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: HiddenSizes) -> None:
        super().__init__()
        self.net = Layers.of(hidden_sizes).from_obs(obs_dim, action_dim)
        self.log_std = nn.Parameter(torch.zeros(action_dim))

    def forward(self, obs: Tensor) -> Gaussian:
        mean = self.net(obs).tanh()
        return Gaussian(mean, self.log_std.clamp(-5, 2).expand_as(mean))


class FreeMeanPolicy(nn.Module):
    """Gaussian with an unbounded mean and a state-independent log std, which AWAC bounds and PPO does not."""

    def __init__(
        self, net: nn.Module, action_dim: int, log_std: float = 0.0, *, bounds: tuple[float, float] | None = None
    ) -> None:
        super().__init__()
        self.net, self.bounds = net, bounds
        self.log_std = nn.Parameter(torch.full((action_dim,), log_std))

    def forward(self, features: Tensor) -> Gaussian:
        mean = self.net(features)
        log_std = self.log_std if self.bounds is None else self.log_std.clamp(*self.bounds)
        return Gaussian(mean, log_std.expand_as(mean))


class SquashedPolicy(nn.Module):
    """Tanh-squashed Gaussian with a state-dependent mean and log std (SAC).

    With `log_std_offset`, log std = multiplier * output + offset with two trained scalars, initially 1 and the offset.
    SimBa networks bound log std smoothly: log std = -10 + 6 * (1 + tanh(output)).
    """

    log_std_multiplier: nn.Parameter | None
    log_std_offset: nn.Parameter | None

    def __init__(
        self, obs_dim: int, action_dim: int, hidden_sizes: HiddenSizes, *, log_std_offset: float | None = None
    ) -> None:
        super().__init__()
        layers = Layers.of(hidden_sizes)
        self.net = layers.from_obs(obs_dim, 2 * action_dim, parts=2)
        self.smooth_bounds = layers.blocks is not None
        for name, value in (("log_std_multiplier", 1.0), ("log_std_offset", log_std_offset)):
            self.register_parameter(name, None if log_std_offset is None else nn.Parameter(torch.tensor(value)))

    def forward(self, obs: Tensor) -> SquashedGaussian:
        mean, log_std = self.net(obs).float().chunk(2, -1)
        if self.log_std_multiplier is not None:
            log_std = self.log_std_multiplier * log_std + self.log_std_offset
        if self.smooth_bounds:
            return SquashedGaussian(mean, -10 + 6 * (1 + log_std.tanh()))
        return SquashedGaussian(mean, log_std.clamp(-20, 2))


class DeterministicPolicy(nn.Module):
    """Deterministic policy bounded by tanh (TD3)."""

    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: HiddenSizes) -> None:
        super().__init__()
        self.net = Layers.of(hidden_sizes).from_obs(obs_dim, action_dim)

    def forward(self, obs: Tensor) -> Deterministic:
        return Deterministic(self.net(obs).float().tanh())


class CategoricalPolicy(nn.Module):
    """Categorical over the actions, or over those that `valid` [..., actions] marks."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, features: Tensor, valid: Tensor | None = None) -> Categorical:
        return Categorical(masked(self.net(features).float(), valid))


class MultiCategoricalPolicy(nn.Module):
    """Independent categoricals with these numbers of actions; one network computes all logits."""

    def __init__(self, net: nn.Module, sizes: Sequence[int]) -> None:
        super().__init__()
        self.net, self.sizes = net, list(sizes)

    def forward(self, features: Tensor, valid: Tensor | None = None) -> MultiCategorical:
        logits = masked(self.net(features), valid)
        return MultiCategorical(tuple(map(Categorical, logits.split(self.sizes, -1))))
