"""CORL's CQL update for several seeds as batched products, so that a CUDA graph can hold it.

CORL trains one seed, and its update waits for the GPU about thirty times to log. `FusedCQL` copies the networks of
CORL's trainers and computes the same update: `peer_corl.py check` compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

GAMMA, TAU, ALPHA, SAMPLES = 0.99, 0.005, 10.0, 10  # CORL's configs of HalfCheetah, Hopper and Walker2d
POLICY_RATE, CRITIC_RATE = 3e-5, 3e-4
LOG_STD_BOUNDS = (-20.0, 2.0)


class Columns(NamedTuple):
    """Transitions, or a batch of them for each seed [seeds, rows, ...]."""

    obs: Tensor
    actions: Tensor
    rewards: Tensor
    next_obs: Tensor
    dones: Tensor


class Noise(NamedTuple):
    """Random numbers of an update in the order in which CORL draws them; uniform ones are in [-1, 1]."""

    policy: Tensor  # [seeds, rows, dims]
    target: Tensor
    uniform: Tensor  # [seeds, rows, samples, dims]
    current: Tensor
    following: Tensor

    @classmethod
    def draw(cls, seeds: int, rows: int, dims: int, device: str) -> Noise:
        one, many = (seeds, rows, dims), (seeds, rows, SAMPLES, dims)
        policy, target, current, following = (torch.randn(*size, device=device) for size in (one, one, many, many))
        return cls(policy, target, 2 * torch.rand(*many, device=device) - 1, current, following)


class Policy(NamedTuple):
    mean: Tensor
    log_std: Tensor

    def sample(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Squashed actions and their log-probabilities."""
        raw = self.mean + self.log_std.exp() * noise
        normal = -0.5 * noise**2 - self.log_std - 0.5 * math.log(2 * math.pi)
        return raw.tanh(), (normal - 2 * (math.log(2) - raw - softplus(-2 * raw))).sum(-1)

    def repeated(self) -> Policy:
        return Policy(self.mean.unsqueeze(-2), self.log_std.unsqueeze(-2))


def linear_layers(network: nn.Module) -> list[nn.Linear]:
    return [layer for layer in network.modules() if isinstance(layer, nn.Linear)]


def stacked(networks: Sequence[nn.Module], device: str) -> list[Tensor]:
    """Weights [networks, in, out] and biases [networks, 1, out] of every layer in turn."""
    found = []
    for layers in zip(*map(linear_layers, networks), strict=True):
        found += [torch.stack([layer.weight.detach().T for layer in layers])]
        found += [torch.stack([layer.bias.detach()[None] for layer in layers])]
    return [each.to(device).contiguous() for each in found]


def forward(parameters: Sequence[Tensor], inputs: Tensor) -> Tensor:
    """Outputs of stacked networks with ReLU between their layers; [networks, rows, features]."""
    layers = list(zip(parameters[::2], parameters[1::2], strict=True))
    for number, (weight, bias) in enumerate(layers):
        inputs = torch.baddbmm(bias, inputs, weight)
        if number + 1 < len(layers):
            inputs = inputs.relu()
    return inputs


def values(critics: Sequence[Tensor], obs: Tensor, actions: Tensor) -> Tensor:
    """Q(s, a) of both critics of every seed; [seeds, 2, rows]."""
    inputs = torch.cat([obs, actions], -1).repeat_interleave(2, 0)
    return forward(critics, inputs).view(len(obs), 2, -1)


class FusedCQL:
    def __init__(self, trainers: Sequence[Any], device: str) -> None:
        self.critics = stacked([c.network for t in trainers for c in (t.critic_1, t.critic_2)], device)
        self.targets = [each.clone() for each in self.critics]
        self.actor = stacked([t.actor.base_network for t in trainers], device)
        names = ("log_std_multiplier", "log_std_offset")
        scalars = [torch.stack([getattr(t.actor, name).constant.detach() for t in trainers]) for name in names]
        self.multiplier, self.offset = (each.to(device).view(-1, 1, 1) for each in scalars)
        self.log_alpha = torch.stack([t.log_alpha.constant.detach() for t in trainers]).to(device)
        self.target_entropy = trainers[0].target_entropy
        slow = [*self.actor, self.multiplier, self.offset, self.log_alpha]
        for each in (*self.critics, *slow):
            each.requires_grad_(True)
        options: dict[str, Any] = {"fused": True, "capturable": True} if device != "cpu" else {}
        self.optimizers = [
            torch.optim.Adam(self.critics, CRITIC_RATE, **options), torch.optim.Adam(slow, POLICY_RATE, **options)
        ]  # fmt: skip

    def policy(self, obs: Tensor) -> Policy:
        mean, log_std = forward(self.actor, obs).chunk(2, -1)
        return Policy(mean, (self.multiplier * log_std + self.offset).clamp(*LOG_STD_BOUNDS))

    def loss(self, batch: Columns, noise: Noise) -> Tensor:
        """The sum of all losses over the seeds: each parameter gets the gradient that CORL's own step uses."""
        policy = self.policy(batch.obs)
        actions, log_prob = policy.sample(noise.policy)
        frozen = [each.detach() for each in self.critics]
        alpha = self.log_alpha.detach().exp().unsqueeze(-1)
        actor = alpha * log_prob - values(frozen, batch.obs, actions).amin(1)
        temperature = -self.log_alpha.unsqueeze(-1) * (log_prob.detach() + self.target_entropy)
        return (actor + temperature).mean(-1).sum() + self.critic_loss(batch, noise, policy)

    def critic_loss(self, batch: Columns, noise: Noise, policy: Policy) -> Tensor:
        with torch.no_grad():
            following = self.policy(batch.next_obs)
            next_q = values(self.targets, batch.next_obs, following.sample(noise.target)[0]).amin(1)
            target = batch.rewards + GAMMA * (1 - batch.dones) * next_q
            samples = [policy.repeated().sample(noise.current), following.repeated().sample(noise.following)]
            sampled = torch.cat([batch.actions.unsqueeze(2), noise.uniform, *(each[0] for each in samples)], 2)
            density = torch.full_like(samples[0][1], batch.actions.shape[-1] * math.log(0.5))
            log_prob = torch.cat([density, *(each[1] for each in samples)], 2)
            obs = batch.obs.unsqueeze(2).expand(*sampled.shape[:3], -1)
        q = values(self.critics, obs.flatten(1, 2), sampled.flatten(1, 2)).unflatten(-1, sampled.shape[1:3])
        data, others = q[..., 0], q[..., 1:]
        gap = (others - log_prob.unsqueeze(1)).logsumexp(-1) - data
        return ((data - target.unsqueeze(1)) ** 2 + ALPHA * gap).mean(-1).sum()

    def update(self, batch: Columns, noise: Noise, loss: Any = None) -> None:
        """One step of every optimizer from the same parameters, then the target critics; `loss`: a compiled one."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        (loss or self.loss)(batch, noise).backward()
        for optimizer in self.optimizers:
            optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.targets, self.critics, TAU)

    def state(self) -> dict[str, Any]:
        tensors = [*self.critics, *self.targets, *self.actor, self.multiplier, self.offset, self.log_alpha]
        return {"tensors": tensors, "optimizers": [each.state_dict() for each in self.optimizers]}

    def load(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            for mine, stored in zip(self.state()["tensors"], state["tensors"], strict=True):
                mine.copy_(stored)
        for optimizer, stored in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(stored)

    def differences(self, trainers: Iterable[Any]) -> list[float]:
        """The largest difference from the trainers, for each parameter of each seed."""
        trainers = list(trainers)
        critics = [c.network for t in trainers for c in (t.critic_1, t.critic_2)]
        targets = [c.network for t in trainers for c in (t.target_critic_1, t.target_critic_2)]
        pairs = list(zip(self.critics, stacked(critics, "cpu"), strict=True))
        pairs += zip(self.targets, stacked(targets, "cpu"), strict=True)
        pairs += zip(self.actor, stacked([t.actor.base_network for t in trainers], "cpu"), strict=True)
        for mine, name in ((self.multiplier, "log_std_multiplier"), (self.offset, "log_std_offset")):
            pairs += zip(mine.flatten(), [getattr(t.actor, name).constant for t in trainers], strict=True)
        pairs += zip(self.log_alpha, [t.log_alpha.constant for t in trainers], strict=True)
        return [float((mine.detach().cpu() - theirs.detach()).abs().max()) for mine, theirs in pairs]
