"""Writers of dataset files, one module per format; `load_transition_dataset` reads them back."""

from collections.abc import Callable
from pathlib import Path

from rl_training.data.datasets.transition_dataset import TransitionDataset
from rl_training.data.writers.files import save_npz, save_parquet
from rl_training.data.writers.minari import save_minari

__all__ = ["save_minari", "save_npz", "save_parquet", "save_transition_dataset"]

WRITERS: dict[str, Callable[[TransitionDataset, Path], None]] = {".npz": save_npz, ".parquet": save_parquet}


def save_transition_dataset(dataset: TransitionDataset, destination: str | Path) -> None:
    """Writes a .npz or .parquet file, or a Minari directory if the name has no suffix."""
    writer_for(destination)(dataset, Path(destination))


def writer_for(destination: str | Path) -> Callable[[TransitionDataset, Path], None]:
    path = Path(destination)
    if not path.suffix:
        return save_minari
    if path.suffix not in WRITERS:
        raise ValueError(f"cannot write {path}: supported are {', '.join(WRITERS)} files, or a new Minari directory")
    return WRITERS[path.suffix]
