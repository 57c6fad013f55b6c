"""Conversion of a dataset to arrays in environment units."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from rl_training.data.datasets.actions import unscale_actions
from rl_training.data.datasets.transition_dataset import TransitionDataset

Arrays: TypeAlias = "dict[str, np.ndarray[Any, Any]]"


def arrays_in_env_units(dataset: TransitionDataset) -> Arrays:
    """All columns as arrays, with actions in environment units and shape."""
    columns = dict(dataset.columns)
    for name in ("actions", "next_actions"):
        if name in columns:
            shape = dataset.spec.action_shape if dataset.spec.action_kind == "box" else ()
            columns[name] = unscale_actions(columns[name], dataset.spec).reshape(-1, *shape)
    return {name: column.contiguous().cpu().numpy() for name, column in columns.items()}
