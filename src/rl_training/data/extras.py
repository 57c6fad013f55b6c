"""Packages that some formats need, imported where they are used; their absence is one sentence."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Any: neither package has types of its own.


def h5py_or_error() -> Any:
    return _imported("h5py", "HDF5")


def parquet_or_error() -> Any:
    return _imported("pyarrow.parquet", "Parquet")


def arrow_or_error() -> Any:
    return _imported("pyarrow", "Arrow and Parquet")


def _imported(module: str, formats: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise ImportError(f'{package} is needed for {formats}: pip install "rl-training[data]"') from error
