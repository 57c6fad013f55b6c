"""Train, evaluate, predict, resume and compare reinforcement-learning agents, one way for every algorithm.

The public names are in `__init__.pyi`, which `make stub` writes. Each is imported on first use, so that
`import rl_training` and the command line start without torch.
"""

from typing import Any

from rl_training.lazy_names import lazy_names
from rl_training.platforms import unsupported

__version__ = "0.1.0"

_get, __dir__ = lazy_names(__name__, __file__, made_by="rl_training.api.catalogue")


def __getattr__(name: str) -> Any:
    if not name.startswith("_") and (sentence := unsupported()) is not None:
        raise ImportError(sentence)
    return _get(name)
