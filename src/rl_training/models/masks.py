"""Masks of valid actions, which are a part of the observation (`EnvSpec.action_mask`)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from rl_training.models.encoders import floats_in
from rl_training.types import EnvSpec

INVALID = -1e8  # logit or Q-value of an invalid action; finite, so that entropies and gradients are finite too


class ActionMask(nn.Module):
    """Reads the valid actions, bool [..., actions], from observations [..., entries].

    The choices of a MultiDiscrete action follow one another. Environments may return a mask without a valid action at
    the end of an episode. All actions then count as valid.
    """

    def __init__(self, spec: EnvSpec) -> None:
        super().__init__()
        self.columns, self.is_packed = mask_columns(spec), bool(spec.obs_parts)

    def forward(self, obs: Tensor) -> Tensor:
        valid = self.read(obs)
        return valid | ~valid.any(-1, keepdim=True)

    def read(self, obs: Tensor) -> Tensor:
        entries = obs[..., self.columns]
        return (floats_in(entries) if self.is_packed else entries) > 0.5


def mask_columns(spec: EnvSpec) -> slice:
    """Columns of an observation that hold the mask: one for each action, or four bytes where parts are packed."""
    if spec.action_mask is None:
        raise ValueError("the observations have no action_mask")
    width = sum(spec.choice_sizes) * (4 if spec.obs_parts else 1)
    return slice(spec.action_mask, spec.action_mask + width)


def action_mask(spec: EnvSpec) -> ActionMask | None:
    """Returns the reader of masks for the part `mask` of a model, or None if the observations have no mask."""
    return None if spec.action_mask is None else ActionMask(spec)


def valid_actions(model: Any, obs: Tensor) -> tuple[Tensor, ...]:
    """Extra arguments of a policy head: (valid actions of these observations,), or () without a mask."""
    mask = getattr(model, "mask", None)
    return (mask(obs),) if isinstance(mask, ActionMask) else ()


def masked(values: Tensor, valid: Tensor | None = None) -> Tensor:
    """Replaces the logits or Q-values of invalid actions, so that none of them is chosen."""
    return values if valid is None else values.masked_fill(~valid, INVALID)
