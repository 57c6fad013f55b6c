"""Optional packages for file formats, imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Any: h5py and pyarrow have no type annotations.


def import_h5py() -> Any:
    return _import("h5py", "HDF5")


def import_parquet() -> Any:
    return _import("pyarrow.parquet", "Parquet")


def import_arrow() -> Any:
    return _import("pyarrow", "Arrow and Parquet")


def _import(module: str, formats: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise ImportError(f'{formats} files need {package}: pip install "rl-training[data]"') from error
