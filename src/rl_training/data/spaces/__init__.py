"""Conversion between an environment's own observations and actions and the library's, without Gymnasium."""

from rl_training.data.spaces.actions import Actions
from rl_training.data.spaces.batches import batched, entry
from rl_training.data.spaces.description import Description, Leaf, leaves, rebuild
from rl_training.data.spaces.observations import Observations
from rl_training.data.spaces.of_spec import actions_of, observations_of

__all__ = [
    "Actions",
    "Description",
    "Leaf",
    "Observations",
    "actions_of",
    "batched",
    "entry",
    "leaves",
    "observations_of",
    "rebuild",
]
