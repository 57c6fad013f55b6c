"""Transitions from NumPy's .npz: an array a column, by our names or the common ones."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.data.readers.names import choose_names, members, other_names
from rl_training.data.readers.rows import (
    StoredColumns,
    compact_dtype,
    complete_transitions,
    require_numbers,
    side_by_side,
)
from rl_training.types import Array, Arrays, EnvSpec


def read_npz(path: Path, given: Mapping[str, str] | None) -> StoredColumns:
    """Read a dataset; columns of other names are kept where they have a number for every row."""
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not a readable .npz file")
    with np.load(path, allow_pickle=False) as file:
        stored = [name for name in file.files if name != "spec"]
        names = choose_names(stored, given, path)
        columns: Arrays = {}
        for ours, theirs in names.items():
            parts = {name: _read(file, name, path) for name in members(theirs, stored)}
            for name, part in parts.items():
                if ours != "episodes":
                    require_numbers(name, part.dtype, path)
            columns[ours] = side_by_side(list(parts.values()))
        for name in other_names(stored, names, given):
            column = _read(file, name, path)
            if column.ndim and len(column) == len(columns["obs"]) and column.dtype.kind in "fiub":
                columns[name] = column
        spec = EnvSpec.from_json(json.loads(str(file["spec"]))) if "spec" in file.files else None
    return complete_transitions(columns, names, path, spec=spec)


def _read(file: Any, name: str, path: Path) -> Array:
    try:
        array: Array = file[name]
    except ValueError as error:
        # Python objects are stored pickled, and unpickling a stranger's file runs the stranger's code.
        raise ValueError(f"{path}: column {name!r} is no plain array of numbers: {error}") from error
    return array.astype(compact_dtype(array.dtype), copy=False)
