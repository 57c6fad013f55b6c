"""Optional packages for file formats, imported on first use."""

from functools import partial
from importlib import import_module
from typing import Any


def _import(module: str, formats: str) -> Any:  # Any: h5py and pyarrow have no type annotations
    try:
        return import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise ImportError(f'{formats} files need {package}: pip install "rl-training[data]"') from error


import_h5py = partial(_import, "h5py", "HDF5")
import_parquet = partial(_import, "pyarrow.parquet", "Parquet")
import_arrow = partial(_import, "pyarrow", "Arrow and Parquet")
import_arrow_csv = partial(_import, "pyarrow.csv", "CSV")
