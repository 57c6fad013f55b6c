"""Datasets to files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.data.actions import unscale_actions
from rl_training.data.offline_dataset import TransitionDataset


def save_npz(dataset: TransitionDataset, path: str | Path) -> None:
    """Write every column, actions in the environment's units, and the spec that leads back to the library's."""
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"save_npz writes files that end in .npz, got {path}")
    columns = dict(dataset.columns)
    for name in ("actions", "next_actions"):
        if name in columns:
            columns[name] = unscale_actions(columns[name], dataset.spec)
    # Any: the type of savez takes unpacked arrays for its own keyword, a bool.
    arrays: dict[str, Any] = {name: column.cpu().numpy() for name, column in columns.items()}
    np.savez(path, **arrays, spec=np.array(json.dumps(dataset.spec.to_json())))
