"""The callbacks that a config names."""

from typing import Any

from rl_training.experiment.config.messages import ConfigError
from rl_training.experiment.config.train_config import TrainConfig
from rl_training.messages import describe_error
from rl_training.modules import load_object
from rl_training.runtime.engine import Callback


def callbacks_of(config: TrainConfig) -> list[Callback]:
    """Imports and creates the callbacks of a config; every seed has its own."""
    return [_created(dict(each) if isinstance(each, dict) else {"callback": each}) for each in config.callbacks]


def _created(options: dict[str, Any]) -> Callback:
    name = str(options.pop("callback"))
    make = load_object(name, "callbacks")
    if not callable(make):
        raise ConfigError(f"callbacks: {name} must be a subclass of rl_training.Callback, got {make!r}")
    try:
        made = make(**options)
    except Exception as error:
        raise ConfigError(f"callbacks: {name} could not be created: {describe_error(error)}") from error
    if not isinstance(made, Callback):
        raise ConfigError(f"callbacks: {name} must be a subclass of rl_training.Callback, got {type(made).__name__}")
    return made
