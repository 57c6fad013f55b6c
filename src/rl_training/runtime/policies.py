"""Policies without parameters, and a check of the masks that a policy reads."""

from typing import Any

import torch
from torch import Tensor, nn

from rl_training.algorithms.core.ops import nth_valid
from rl_training.models.masks import ActionMask, action_mask
from rl_training.types import Action, EnvSpec, Policy


class RandomPolicy:
    """Uniform over the action space, or over its valid actions; the replay lane uses it for its first steps."""

    def __init__(self, spec: EnvSpec) -> None:
        self.spec, self.mask = spec, action_mask(spec)

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action:
        lead = obs.shape[: obs.dim() - len(self.spec.obs_shape)]
        if self.mask is not None:
            return Action(self._valid_actions(self.mask(obs), generator))
        if self.spec.action_kind == "discrete":
            return Action(torch.randint(self.spec.action_dim, lead, generator=generator, device=obs.device))
        uniform = torch.rand(*lead, self.spec.action_dim, generator=generator, device=obs.device)
        if self.spec.action_kind == "multi_discrete":
            return Action((uniform * uniform.new_tensor(self.spec.action_sizes)).long())
        return Action(uniform * 2 - 1)

    def _valid_actions(self, valid: Tensor, generator: torch.Generator | None) -> Tensor:
        parts = valid.split(self.spec.choice_sizes, -1)
        uniform = torch.rand(len(parts), *valid.shape[:-1], generator=generator, device=valid.device)
        chosen = [nth_valid(*pair) for pair in zip(uniform, parts, strict=True)]
        return torch.stack(chosen, -1) if self.spec.action_kind == "multi_discrete" else chosen[0]


class SometimesRandom:
    """Epsilon-greedy version of a policy: each action is uniform with probability `epsilon`."""

    def __init__(self, policy: Policy, spec: EnvSpec, epsilon: float) -> None:
        self.policy, self.random, self.epsilon = policy, RandomPolicy(spec), epsilon

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action:
        action = self.policy.act(obs, memory, deterministic=deterministic, generator=generator)
        uniform = self.random.act(obs, generator=generator).actions
        explores = torch.rand(len(obs), generator=generator, device=obs.device) < self.epsilon
        explores = explores.view(-1, *[1] * (uniform.dim() - 1))
        return Action(action.actions, action.memory).with_actions(torch.where(explores, uniform, action.actions))


def require_valid_actions(model: nn.Module, spec: EnvSpec, obs: Tensor) -> None:
    """Raises ValueError if a mask that the model reads from observations [rows, ...] allows no action of a choice."""
    masks = () if spec.action_mask is None else (each for each in model.modules() if isinstance(each, ActionMask))
    if (mask := next(iter(masks), None)) is None:
        return
    choices = mask.read(obs).split(spec.choice_sizes, -1)
    empty = ~torch.stack([choice.any(-1) for choice in choices], -1)  # [rows, choices]
    if empty.any():
        row, choice = empty.nonzero()[0].tolist()
        place = f" for choice {choice}" * (len(choices) > 1) + f" in row {row}" * (len(obs) > 1)
        raise ValueError(f"action_mask has no valid action{place}; allow one, or start a new episode there")
