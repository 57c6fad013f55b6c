"""Train, evaluate, predict, resume and compare reinforcement-learning agents, one way for every algorithm.

The public names stand in `__init__.pyi`, for type checkers and for this file alike. Each is imported when it is first
used, so that `import rl_training` and the command line start without torch.
"""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_HOME_OF = {name: home for home, name in re.findall(r"^from (\S+) import (\w+) as", _STUB, re.MULTILINE)}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'rl_training' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*_HOME_OF, "__version__"])
