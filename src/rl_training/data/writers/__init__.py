"""Datasets to files, one small module a format; what is written here is read back by `load_transition_dataset`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rl_training.data.datasets.transition_dataset import TransitionDataset
from rl_training.data.writers.minari import save_minari
from rl_training.data.writers.npz import save_npz
from rl_training.data.writers.parquet import save_parquet

__all__ = ["save_minari", "save_npz", "save_parquet", "save_transition_dataset"]

WRITERS: dict[str, Callable[[TransitionDataset, Path], None]] = {".npz": save_npz, ".parquet": save_parquet}


def save_transition_dataset(dataset: TransitionDataset, destination: str | Path) -> None:
    """Write a .npz or .parquet file, or, where the name has no suffix, a Minari directory."""
    writer_for(destination)(dataset, Path(destination))


def writer_for(destination: str | Path) -> Callable[[TransitionDataset, Path], None]:
    """What writes to a place of this name."""
    path = Path(destination)
    if not path.suffix:
        return save_minari
    if path.suffix not in WRITERS:
        raise ValueError(f"cannot write {path}: supported are {', '.join(WRITERS)}, or a new directory for Minari")
    return WRITERS[path.suffix]
