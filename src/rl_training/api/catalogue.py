"""Managed classes (`SAC`) and training functions (`train_sac`), made from the catalogue of algorithms."""

from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic import BaseModel

from rl_training.algorithms import CATALOGUE, ROWS, Learner
from rl_training.api.managed import ManagedAlgorithm, train_as
from rl_training.experiment.config.registry import check_learner, get_algorithm_spec
from rl_training.experiment.config.train_config import TrainConfig
from rl_training.experiment.run import TrainResult


def register_algorithm(learner: type[Learner]) -> type[ManagedAlgorithm]:
    """Adds a learner class from outside the package to the catalogue and returns its managed class.

    The algorithm is known by `learner.name`. Registering a name again replaces the earlier class.
    """
    check_learner(learner)
    if learner.name in ROWS:
        raise ValueError(f"{learner.__name__}.name is {learner.name!r}, a built-in algorithm. Choose another name.")
    CATALOGUE[learner.name] = learner
    return managed_class(learner)


def managed_class(learner: type[Learner]) -> type[ManagedAlgorithm]:
    sections = [
        get_algorithm_spec(learner.name).summary,
        ManagedAlgorithm.__doc__ or "",
        f"Options of {learner.name}:\n{_described(learner.config_type)}",
        f"Options of every run:\n{_described(TrainConfig)}",
    ]
    contents = {"algorithm": learner.name, "__doc__": "\n\n".join(sections), "__module__": "rl_training"}
    return type(learner.__name__.removesuffix("Algorithm"), (ManagedAlgorithm,), contents)


def train_function(name: str) -> Callable[..., TrainResult]:
    function = partial(train_as, name)
    function.__doc__ = f"Trains {name} from a config and returns the result.\n\n{train_as.__doc__}"
    return function


def _described(config: type[BaseModel]) -> str:
    fields = {name: field for name, field in config.model_fields.items() if name != "algo"}
    return "\n".join(f"    {name}: {field.description} (default {field.default!r})" for name, field in fields.items())


def __getattr__(name: str) -> Any:
    for row, managed in ROWS.items():
        if name == managed:
            return globals().setdefault(name, managed_class(CATALOGUE[row]))
        if name == f"train_{row}":
            return globals().setdefault(name, train_function(row))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
