"""Columns from files, one small module a format."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from pathlib import Path

from rl_training.data.readers.csv import read_csv
from rl_training.data.readers.hdf5 import read_hdf5
from rl_training.data.readers.minari import datasets_root, minari_directory, read_minari
from rl_training.data.readers.npz import read_npz
from rl_training.data.readers.parquet import read_parquet
from rl_training.data.readers.rows import StoredColumns, join_rows

READERS = {
    ".npz": read_npz,
    ".hdf5": read_hdf5,
    ".h5": read_hdf5,
    ".parquet": read_parquet,
    ".csv": read_csv,
}


def read_columns(source: str | Path, *, columns: Mapping[str, str] | None = None) -> StoredColumns:
    """The columns of a source under our names, completed but not judged."""
    paths = _paths(source)
    return join_rows([_read(path, columns) for path in paths], paths)


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
