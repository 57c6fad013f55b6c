"""Device environments by the id of the Gymnasium environment that they equal, or by `module:Class`."""

from collections.abc import Mapping
from typing import Any

from rl_training.envs.device.base import TensorEnv
from rl_training.modules import import_named, load_object, module_in

HOME = "rl_training.envs.device"
BUILT_IN = {
    "CartPole-v1": "classic:CartPole",
    "Pendulum-v1": "classic:Pendulum",
    "Acrobot-v1": "classic:Acrobot",
    "MountainCar-v0": "classic:MountainCar",
    "MountainCarContinuous-v0": "classic:MountainCarContinuous",
    "minatar_games:MinAtar/Breakout-v0": "minatar:Breakout",
    "minatar_games:MinAtar/Freeway-v0": "minatar:Freeway",
}


def make_tensor_env(env_id: Any, env_kwargs: Mapping[str, Any]) -> TensorEnv:
    """Creates a built-in device environment, or the class or function `module:Name` of a user."""
    if env_id in BUILT_IN:
        if env_kwargs:
            raise ValueError(f"env_backend: device has {env_id} without options; remove env_kwargs")
        module, _, name = BUILT_IN[env_id].partition(":")
        env = getattr(import_named(f"{HOME}.{module}", env_id, "env_id"), name)()
    elif callable(env_id):
        env = env_id(**env_kwargs)
    elif module_in(env_id) is not None:
        env = load_object(env_id, "env_id")(**env_kwargs)
    else:
        raise ValueError(f"env_backend: device does not have {env_id}; {_offer()}")
    if not isinstance(env, TensorEnv):
        raise TypeError(f"env_backend: device needs a subclass of TensorEnv, got {type(env).__name__}; {_offer()}")
    return env


def _offer() -> str:
    names = ", ".join(name.rpartition(":")[2] for name in BUILT_IN)
    return f"it has {names}, and your subclasses of rl_training.envs.device.base.TensorEnv as module:Class"
