"""Datasets to NumPy .npz and Parquet files: all columns, with actions in environment units, and the spec."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.data.datasets.actions import logged_in_spec_units, unscale_actions
from rl_training.data.datasets.trajectories import STORED
from rl_training.data.datasets.transition_dataset import TransitionDataset
from rl_training.data.extras import import_arrow, import_parquet
from rl_training.files import complete_file
from rl_training.types import Array, Arrays

ROWS = 2**16  # per row group of a Parquet file


def arrays_in_env_units(dataset: TransitionDataset) -> Arrays:
    """All columns as arrays, with actions in environment units and shape."""
    columns = dict(logged_in_spec_units(dataset.columns, dataset.spec, dataset.action_range))
    shape = () if dataset.spec.action_kind == "discrete" else dataset.spec.action_shape
    for name in columns.keys() & {"actions", "next_actions"}:
        columns[name] = unscale_actions(columns[name], dataset.spec).reshape(-1, *shape)
    return {name: column.contiguous().cpu().numpy() for name, column in columns.items()}


def _stored_arrays(dataset: TransitionDataset) -> Arrays:
    numbers = dataset.file_episodes if dataset.trajectories is None else dataset.trajectories
    is_cut = dataset.trajectories is not None or len(dataset.first_rows) < len(dataset.episode_offsets)
    return arrays_in_env_units(dataset) | ({STORED: numbers} if numbers is not None and is_cut else {})


def save_npz(dataset: TransitionDataset, path: str | Path) -> None:
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"save_npz writes files that end in .npz, got {path}")
    arrays: dict[str, Any] = _stored_arrays(dataset)  # Any: the stub of savez types every keyword as bool
    with complete_file(path) as file:
        np.savez(file, **arrays, spec=np.array(json.dumps(dataset.spec.to_json())))


def save_parquet(dataset: TransitionDataset, path: str | Path) -> None:
    path = Path(path)
    if path.suffix != ".parquet":
        raise ValueError(f"save_parquet writes files that end in .parquet, got {path}")
    arrow, arrays = import_arrow(), _stored_arrays(dataset)
    schema = arrow.schema({name: _type(arrow, array) for name, array in arrays.items()})
    schema = schema.with_metadata({"rl_training.spec": json.dumps(dataset.spec.to_json())})
    with complete_file(path) as file, import_parquet().ParquetWriter(file, schema) as writer:
        for start in range(0, len(dataset), ROWS):
            columns = [_nested(arrow, array[start : start + ROWS]) for array in arrays.values()]
            writer.write_table(arrow.table(columns, schema=schema))


def _type(arrow: Any, array: Array) -> Any:
    kind = arrow.from_numpy_dtype(array.dtype)
    for size in reversed(array.shape[1:]):
        kind = arrow.list_(kind, size)
    return kind


def _nested(arrow: Any, array: Array) -> Any:
    values = arrow.array(array.reshape(-1))
    for size in reversed(array.shape[1:]):
        values = arrow.FixedSizeListArray.from_arrays(values, size)
    return values
