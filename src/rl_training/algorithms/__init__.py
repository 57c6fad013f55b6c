"""Catalogue of algorithms: name → class name.

`"cal_ql": "CalQL"` stands for `cal_ql.py` with `CalQLConfig` (options) and `CalQLAlgorithm` (losses and policy), and
for the managed class `rl_training.CalQL` that users train (`learn`, `predict`, `save`) and `rl_training.train_cal_ql`.

`CATALOGUE` maps each name to its learner class. Every public class and function of the algorithm files is an attribute
of this package. All are imported on first use.
"""

import sys
from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any

ROWS = {
    "awac": "AWAC", "bc": "BC", "bcq": "BCQ", "c51": "C51", "cal_ql": "CalQL", "cql": "CQL", "crossq": "CrossQ",
    "dqn": "DQN", "dreamer": "Dreamer", "edac": "EDAC", "fqf": "FQF", "fql": "FQL", "gail": "GAIL", "iql": "IQL",
    "iqn": "IQN", "mbpo": "MBPO", "mopo": "MOPO", "ppo": "PPO", "pqn": "PQN", "qr_dqn": "QRDQN", "rainbow": "Rainbow",
    "rebrac": "ReBRAC", "redq": "REDQ", "sac": "SAC", "td3": "TD3", "td3_bc": "TD3BC", "tqc": "TQC", "xql": "XQL",
}  # fmt: skip

# Other files with public names.
SHARED = (
    "core.config", "core.network", "core.learner", "core.temperature", "core.updater", "discrete_sac", "dynamics",
    "fqe",
)  # fmt: skip


class _Catalogue(MutableMapping[str, Any]):
    """Learner classes by name, each imported on first use: all of them take longer than a run needs to start."""

    def __init__(self) -> None:
        self._learners: dict[str, Any] = dict.fromkeys(ROWS)

    def __getitem__(self, name: str) -> Any:
        if self._learners[name] is None:
            self._learners[name] = _defined_in(name)[f"{ROWS[name]}Algorithm"]
        return self._learners[name]

    def __setitem__(self, name: str, learner: Any) -> None:
        self._learners[name] = learner

    def __delitem__(self, name: str) -> None:
        del self._learners[name]

    def __contains__(self, name: object) -> bool:  # without importing it
        return name in self._learners

    def __iter__(self) -> Iterator[str]:
        return iter(self._learners)

    def __len__(self) -> int:
        return len(self._learners)


CATALOGUE = _Catalogue()


def __getattr__(name: str) -> Any:
    if name in ROWS.values():
        # `from ... import` replaces an AttributeError, and its message, by one of its own.
        importing = sys._getframe(1).f_code.co_name == "_handle_fromlist"
        raise (ImportError if importing else AttributeError)(
            f"{__name__}.{name} was removed. Use rl_training.{name} to train an agent, "
            f"or {__name__}.{name}Algorithm for the learner class."
        )
    likely = [row for row in ROWS if _letters(name).startswith(_letters(row))]  # saves importing the others
    for file in () if name.startswith("_") else (*likely, *SHARED, *ROWS):
        if name in (defined := _defined_in(file)):
            return globals().setdefault(name, defined[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *(name for file in (*SHARED, *ROWS) for name in _defined_in(file))})


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


def _defined_in(file: str) -> dict[str, Any]:
    """The public classes and functions that a file of this package defines."""
    module = import_module(f"{__name__}.{file}")
    found = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return {name: value for name, value in found.items() if getattr(value, "__module__", None) == module.__name__}
