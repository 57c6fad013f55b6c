"""Policies that need no learning."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rl_training.types import Action, EnvSpec, Policy


class RandomPolicy:
    """Uniform over the action space: the first steps of replay lanes, and the floor that every learner must leave."""

    def __init__(self, spec: EnvSpec) -> None:
        self.spec = spec

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action:
        lead = obs.shape[: obs.dim() - len(self.spec.obs_shape)]
        if self.spec.action_kind == "discrete":
            return Action(torch.randint(self.spec.action_dim, lead, generator=generator, device=obs.device))
        uniform = torch.rand(*lead, self.spec.action_dim, generator=generator, device=obs.device)
        if self.spec.action_kind == "multi_discrete":
            return Action((uniform * uniform.new_tensor(self.spec.action_sizes)).long())
        return Action(uniform * 2 - 1)


class SometimesRandom:
    """Another policy, whose actions give way to uniform ones with probability `epsilon`, row by row."""

    def __init__(self, policy: Policy, spec: EnvSpec, epsilon: float) -> None:
        self.policy, self.random, self.epsilon = policy, RandomPolicy(spec), epsilon

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action:
        chosen = self.policy.act(obs, memory, deterministic=deterministic, generator=generator)
        uniform = self.random.act(obs, generator=generator).actions
        coins = torch.rand(len(obs), generator=generator, device=obs.device) < self.epsilon
        wide = coins.view(-1, *[1] * (uniform.dim() - 1))
        return Action(chosen.actions, chosen.memory).with_actions(torch.where(wide, uniform, chosen.actions))
