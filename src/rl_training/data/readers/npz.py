"""Transitions from NumPy's .npz: an array a column, by our names or the common ones."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np

from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.readers.rows import NAMES, complete_transitions, find_names
from rl_training.types import EnvSpec


def read_npz(path: Path, spec: EnvSpec | None) -> TransitionDataset:
    """Read a dataset; columns of other names are kept where they have a number for every row."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (zipfile.BadZipFile, ValueError, TypeError) as error:
        raise ValueError(f"{path} is not a readable .npz file of plain arrays: {error}") from error
    stored_spec = arrays.pop("spec", None)
    if spec is None and stored_spec is not None:
        spec = EnvSpec.from_json(json.loads(str(stored_spec)))
    columns = {ours: arrays[name] for ours, name in find_names(arrays, path).items()}
    known = {name for names in NAMES.values() for name in names}
    others = {name: array for name, array in arrays.items() if name not in known and _fits(array, columns["obs"])}
    return TransitionDataset.from_dict(complete_transitions({**columns, **others}, path), spec=spec)


def _fits(array: np.ndarray, obs: np.ndarray) -> bool:
    return array.ndim > 0 and len(array) == len(obs) and array.dtype.kind in "fiub"
