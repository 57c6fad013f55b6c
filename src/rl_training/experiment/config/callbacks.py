"""The callbacks that a config names."""

from collections.abc import Iterable
from typing import Any

from rl_training.experiment.config.messages import ConfigError
from rl_training.experiment.config.train_config import TrainConfig
from rl_training.messages import describe_error
from rl_training.modules import load_object, option_hint
from rl_training.runtime.engine import Callback

EVENTS = ("on_train_start", "on_collect_end", "on_update_end", "on_step_end", "on_train_end")
OF_STABLE_BASELINES = (
    "has only _on_step, a method of Stable-Baselines3 that is never called here: define on_step_end(self, state), and "
    "call state.request_stop(reason) instead of returning False"
)


def callbacks_of(config: TrainConfig) -> list[Callback]:
    """Imports and creates the callbacks of a config; every seed has its own."""
    return [_created(dict(each) if isinstance(each, dict) else {"callback": each}) for each in config.callbacks]


def _created(options: dict[str, Any]) -> Callback:
    name = str(options.pop("callback"))
    make = load_object(name, "callbacks")
    if not callable(make) or (isinstance(make, type) and not issubclass(make, Callback)):
        raise ConfigError(f"callbacks: {name} must be a subclass of rl_training.Callback, got {make!r}")
    try:
        made = make(**options)
    except Exception as error:
        hint = option_hint(make, error)
        raise ConfigError(f"callbacks: {name} could not be created: {describe_error(error)}{hint}") from error
    if not isinstance(made, Callback):
        raise ConfigError(f"callbacks: {name} must be a subclass of rl_training.Callback, got {type(made).__name__}")
    if _is_of_stable_baselines(made):
        raise ConfigError(f"callbacks: {name} {OF_STABLE_BASELINES}")
    return made


def listed_callbacks(callbacks: Any) -> list[Callback]:
    """Returns the callbacks that a caller of the training has passed: a list, or a single one."""
    is_single = isinstance(callbacks, Callback | str | type) or not isinstance(callbacks, Iterable)
    given = [callbacks] if is_single else list(callbacks)
    for each in given:
        if isinstance(each, type) and issubclass(each, Callback):
            raise TypeError(f"callbacks: {each.__name__} is a class; pass an object: callbacks=[{each.__name__}(…)]")
        if not isinstance(each, Callback):
            hint = "; a name belongs in the key `callbacks` of the config" if isinstance(each, str) else ""
            raise TypeError(f"callbacks must be objects of a subclass of rl_training.Callback, got {each!r}{hint}")
        if _is_of_stable_baselines(each):
            raise TypeError(f"callbacks: {type(each).__name__} {OF_STABLE_BASELINES}")
    return given


def _is_of_stable_baselines(callback: Callback) -> bool:
    return hasattr(callback, "_on_step") and all(
        getattr(type(callback), name) is getattr(Callback, name) for name in EVENTS
    )
