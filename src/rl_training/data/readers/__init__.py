"""Datasets from files, one small module a format."""

from __future__ import annotations

from pathlib import Path

from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.readers.hdf5 import read_hdf5
from rl_training.data.readers.npz import read_npz
from rl_training.types import EnvSpec

READERS = {".npz": read_npz, ".hdf5": read_hdf5, ".h5": read_hdf5}


def load_transition_dataset(source: str | Path, *, spec: EnvSpec | None = None) -> TransitionDataset:
    """Read a file of transitions; `spec` says which environment they must fit, and the bounds of its actions."""
    path = Path(source)
    if path.suffix not in READERS:
        raise ValueError(f"cannot read {path}: supported are files that end in {', '.join(READERS)}")
    if not path.is_file():
        raise FileNotFoundError(f"there is no dataset file {path}")
    return READERS[path.suffix](path, spec)
