"""Datasets from files, one small module a format."""

from __future__ import annotations

import glob
from collections.abc import Collection, Mapping
from pathlib import Path

import torch

from rl_training.data.actions import Bounds
from rl_training.data.columns import to_tensor
from rl_training.data.faults import DatasetFault, require_allowable, require_episode_ends
from rl_training.data.mending import without_crossing, without_nan
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.readers.csv import read_csv
from rl_training.data.readers.hdf5 import read_hdf5
from rl_training.data.readers.minari import datasets_root, minari_directory, read_minari
from rl_training.data.readers.npz import read_npz
from rl_training.data.readers.parquet import read_parquet
from rl_training.data.readers.rows import StoredColumns, join_rows
from rl_training.types import Batch, EnvSpec

READERS = {
    ".npz": read_npz,
    ".hdf5": read_hdf5,
    ".h5": read_hdf5,
    ".parquet": read_parquet,
    ".csv": read_csv,
}


def load_transition_dataset(
    source: str | Path,
    *,
    spec: EnvSpec | None = None,
    columns: Mapping[str, str] | None = None,
    action_range: Bounds | None = None,
    allow: Collection[str] = (),
) -> TransitionDataset:
    """Read transitions from a file, a glob of files, or a Minari dataset by its directory or id.

    `spec` says which environment they must fit; `columns` which of the file's columns is which (`{"obs": "state"}`);
    `action_range` the bounds that Box actions were recorded in; `allow` which faults to mend instead of refuse.
    """
    require_allowable(allow)
    stored = read_columns(source, columns=columns)
    try:
        rows = _sound(stored, allow)
        return TransitionDataset.from_dict(rows, spec=spec or stored.spec, action_range=action_range, allow=allow)
    except (TypeError, ValueError) as error:
        known = len(stored.columns["obs"])
        told = isinstance(error, DatasetFault) and known < stored.rows  # then it speaks of rows
        counted = f" (rows counted among the {known} of {stored.rows} with a successor)" if told else ""
        raise type(error)(f"{source}: {error}{counted}") from error


def read_columns(source: str | Path, *, columns: Mapping[str, str] | None = None) -> StoredColumns:
    """The columns of a source under our names, completed but not judged."""
    paths = _paths(source)
    return join_rows([_read(path, columns) for path in paths], paths)


def _sound(stored: StoredColumns, allow: Collection[str]) -> Batch:
    """What the rows tell of their episodes must be right: refused or mended here, while the file is known."""
    rows = {name: to_tensor(name, column) for name, column in stored.columns.items()}
    if "no_episode_end" not in allow:
        told = not {"dones", "truncated", "episodes"}.isdisjoint(stored.names)
        require_episode_ends(rows["dones"], rows["truncated"] if told else torch.zeros(1))
    rows = without_nan(rows, allow)
    if "next_obs" in stored.names:  # made from the following rows it fits them
        rows = without_crossing(rows, allow)
    return rows


def _paths(source: str | Path) -> list[Path]:
    path = Path(source)
    if path.exists() or not glob.has_magic(str(source)):
        return [path]
    found = sorted(map(Path, glob.glob(str(source), recursive=True)))
    if not found:
        raise FileNotFoundError(f"no file matches {source}")
    return found


def _read(path: Path, columns: Mapping[str, str] | None) -> StoredColumns:
    directory = None if path.is_file() else minari_directory(path)
    if directory is not None:
        return read_minari(directory, columns)
    if path.suffix not in READERS and (path.suffix or path.exists()):
        raise ValueError(f"cannot read {path}: supported are files that end in {', '.join(READERS)}, and Minari's data")
    if not path.is_file():
        minari = f", nor a Minari dataset in {datasets_root()}: `minari download {path}` fetches those of its servers"
        raise FileNotFoundError(f"there is no dataset file {path}{'' if path.suffix else minari}")
    return READERS[path.suffix](path, columns)
