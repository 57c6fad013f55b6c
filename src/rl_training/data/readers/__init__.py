"""Readers of dataset files, one module per format."""

import glob
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb

from rl_training.data.readers.csv import read_csv
from rl_training.data.readers.hdf5 import read_hdf5
from rl_training.data.readers.minari import datasets_root, minari_directory, read_minari
from rl_training.data.readers.npz import read_npz
from rl_training.data.readers.parquet import read_parquet
from rl_training.data.readers.rows import StoredColumns, join_files

READERS = {".npz": read_npz, ".hdf5": read_hdf5, ".h5": read_hdf5, ".parquet": read_parquet, ".csv": read_csv}


def read_columns(source: str | Path, *, columns: Mapping[str, str] | None = None) -> StoredColumns:
    """Reads a file, a glob of files or a Minari dataset, without validation."""
    paths = _paths(source)
    return join_files([_read(path, columns) for path in paths], paths)


def _paths(source: str | Path) -> list[Path]:
    if Path(source).exists() or not glob.has_magic(str(source)):
        return [Path(source)]
    if found := sorted(map(Path, glob.glob(str(source), recursive=True))):
        return found
    raise FileNotFoundError(f"no file matches {source}")


def _read(path: Path, columns: Mapping[str, str] | None) -> StoredColumns:
    if not path.is_file() and (directory := minari_directory(path)):
        with _naming_damage(directory):
            return read_minari(directory, columns)
    if path.suffix not in READERS and (path.suffix or path.exists()):
        raise ValueError(f"cannot read {path}: supported are {', '.join(READERS)} files and Minari datasets")
    if not path.is_file():
        minari = f", nor a Minari dataset in {datasets_root()}; `minari download {path}` may fetch it"
        raise FileNotFoundError(f"dataset file {path} not found{'' if path.suffix else minari}")
    with _naming_damage(path):
        return READERS[path.suffix](path, columns)


@contextmanager
def _naming_damage(path: Path) -> Iterator[None]:
    """Replaces errors of the libraries that read files; those raised in this package name the problem already."""
    try:
        yield
    except Exception as error:
        *_, (frame, _) = walk_tb(error.__traceback__)
        ours = frame.f_globals.get("__name__", "").startswith("rl_training.")
        if ours and isinstance(error, ValueError | TypeError | ImportError | FileNotFoundError):
            raise
        cause = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path} is damaged and cannot be read ({cause}); copy or download it again") from error
