"""The action that follows each transition of a dataset."""

import torch
from torch import Tensor

from rl_training.data.datasets.tensors import with_marked_ends
from rl_training.data.datasets.transition_dataset import TransitionDataset


def next_actions(dataset: TransitionDataset) -> Tensor:
    """The action in the row after each row; the last row of an episode repeats its own."""
    actions = dataset.columns["actions"]
    is_last = dataset.episode_ends.view(-1, *[1] * (actions.dim() - 1))
    return torch.where(is_last, actions, actions.roll(-1, 0))


def with_next_actions(dataset: TransitionDataset) -> TransitionDataset:
    """Adds the column next_actions.

    No action follows the last row of an episode, which is marked as truncated unless it terminated.
    """
    marked = with_marked_ends(dataset.columns, dataset.episode_ends)
    return dataset.with_columns(next_actions=next_actions(dataset), truncated=marked["truncated"])
