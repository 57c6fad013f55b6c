"""Datasets to NumPy .npz files."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.data.datasets.transition_dataset import TransitionDataset
from rl_training.data.writers.units import arrays_in_env_units


def save_npz(dataset: TransitionDataset, path: str | Path) -> None:
    """Writes all columns, with actions in environment units, and the spec."""
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"save_npz writes files that end in .npz, got {path}")
    arrays: dict[str, Any] = arrays_in_env_units(dataset)  # Any: the stub of savez types every keyword as bool
    np.savez(path, **arrays, spec=np.array(json.dumps(dataset.spec.to_json())))
