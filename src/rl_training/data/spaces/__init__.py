"""Conversion between an environment's own observations and actions and the library's, without Gymnasium."""

from rl_training.data.spaces.actions import Actions
from rl_training.data.spaces.batches import batched, entry, is_pair_of_reset
from rl_training.data.spaces.converters import actions_of, observations_of, own_actions
from rl_training.data.spaces.description import MAX_CHOICES, Description, Leaf, leaves, rebuild
from rl_training.data.spaces.named import action_names, choice_names, is_named, named_columns, named_rows
from rl_training.data.spaces.observations import Observations, require_pixels

__all__ = [
    "MAX_CHOICES", "Actions", "Description", "Leaf", "Observations", "action_names", "actions_of", "batched",
    "choice_names", "entry", "is_named", "is_pair_of_reset", "leaves", "named_columns", "named_rows", "observations_of",
    "own_actions", "rebuild", "require_pixels",
]  # fmt: skip
