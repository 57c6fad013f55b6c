"""Imports a file of CORL's repository, for the scripts of its PyTorch and of its JAX algorithms."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

UNUSED = ("chex", "d4rl", "gym", "pyrallis", "tqdm", "tqdm.auto", "wandb")  # not used by updates


def source(folder: str | Path, algo: str) -> ModuleType:
    """The module of an algorithm in a clone of CORL, without the libraries that it does not need here."""
    file = Path(folder) / "algorithms" / "offline" / f"{algo}.py"
    for name in UNUSED:
        sys.modules[name] = MagicMock()
    spec: Any = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    for name in UNUSED:
        del sys.modules[name]  # PyTorch may look for it
    return module
