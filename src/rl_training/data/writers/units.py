"""Conversion of a dataset to arrays in environment units."""

from rl_training.data.datasets.actions import unscale_actions
from rl_training.data.datasets.transition_dataset import TransitionDataset
from rl_training.types import Arrays


def arrays_in_env_units(dataset: TransitionDataset) -> Arrays:
    """All columns as arrays, with actions in environment units and shape."""
    columns = dict(dataset.columns)
    shape = dataset.spec.action_shape if dataset.spec.action_kind == "box" else ()
    for name in columns.keys() & {"actions", "next_actions"}:
        columns[name] = unscale_actions(columns[name], dataset.spec).reshape(-1, *shape)
    return {name: column.contiguous().cpu().numpy() for name, column in columns.items()}
