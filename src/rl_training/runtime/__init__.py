"""Training at run time: lanes, the training loop, evaluation and checkpoints.

`train_<algorithm>` is defined in `rl_training.api` and can be imported from here too.
"""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if not name.startswith("train_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("rl_training.api.catalogue"), name)
