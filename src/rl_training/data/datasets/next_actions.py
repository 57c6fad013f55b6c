"""The action that follows each transition of a dataset."""

from rl_training.data.datasets.transition_dataset import TransitionDataset


def with_next_actions(dataset: TransitionDataset) -> TransitionDataset:
    """Adds the column next_actions, the action of the next row.

    No action follows the last row of an episode: there the value has no meaning, and the row is marked as truncated
    unless it terminated.
    """
    columns = dataset.columns
    truncated = (dataset.episode_ends & (columns["dones"] == 0)).to(columns["truncated"].dtype)
    return dataset.with_columns(next_actions=columns["actions"].roll(-1, 0), truncated=truncated)
