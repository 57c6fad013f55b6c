"""Transitions from NumPy .npz files with one array per column."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.data.readers import rows
from rl_training.data.readers.names import matching_columns, other_names
from rl_training.data.readers.ogbench import choose_array_names, complete_arrays
from rl_training.types import Array, Arrays, EnvSpec


def read_npz(path: Path, given: Mapping[str, str]) -> rows.StoredColumns:
    """Reads a file; numeric columns of other names are kept if they have one entry per row."""
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not a readable .npz file")
    with np.load(path, allow_pickle=False) as file:
        stored = [name for name in file.files if name != "spec"]
        names = choose_array_names(stored, given, path)
        columns: Arrays = {}
        for name, pattern in names.items():
            parts = {column: _read(file, column, path, name) for column in matching_columns(pattern, stored)}
            for column, part in parts.items() if name != "episodes" else ():
                rows.require_numbers(column, part.dtype, path)
            columns[name] = rows.join_columns(list(parts.values()), name)
        for name in other_names(stored, names, given):
            array = _read(file, name, path)
            if array.ndim and len(array) == len(columns["obs"]) and array.dtype.kind in "fiub":
                columns[name] = array
        spec = EnvSpec.from_json(json.loads(str(file["spec"]))) if "spec" in file.files else None
    return complete_arrays(columns, names, path, spec=spec)


def _read(file: Any, name: str, path: Path, wanted: str = "") -> Array:
    try:
        array: Array = file[name]
    except ValueError as error:
        # Python objects are pickled, and unpickling an untrusted file can run its code.
        raise ValueError(f"{path}: column {name!r} is not an array of numbers: {error}") from error
    return array.astype(rows.stored_dtype(wanted, array.dtype), copy=False)
