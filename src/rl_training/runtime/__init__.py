"""Time passes here: environments, lanes, the training loop, evaluation and checkpoints.

The `train_<algorithm>` functions stand at the top of the house; they are found here too, when first asked for.
"""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if not name.startswith("train_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("rl_training.api.algorithms"), name)
