"""Device environments by the id of the Gymnasium environment that they equal, or by `module:Name`."""

from collections.abc import Mapping
from typing import Any

import torch

from rl_training.envs.device.base import TensorEnv
from rl_training.envs.device.contract import TensorPool
from rl_training.envs.device.names import BUILT_IN, HOME, is_built_in
from rl_training.envs.device.pool import DevicePool
from rl_training.envs.device.simulator import VectorSimulator
from rl_training.envs.device.simulator_pool import SimulatorPool
from rl_training.modules import import_named, load_object, module_in, parameters_of


def make_pool(
    env_id: Any, env_kwargs: Mapping[str, Any], num_envs: int, *, seed: int, device: torch.device | str
) -> TensorPool:
    """Creates the pool of a built-in device environment, or of `module:Name`: a TensorEnv or a VectorSimulator."""
    env = _made(env_id, env_kwargs, num_envs, str(device))
    if isinstance(env, TensorEnv):
        return DevicePool(env, num_envs, seed=seed, device=device)
    if not isinstance(env, VectorSimulator):
        raise TypeError(
            f"env_backend: device needs a TensorEnv or VectorSimulator, got {type(env).__name__}; {_offer()}"
        )
    if env.num_envs != num_envs:
        env.close()
        raise ValueError(f"{env_id} has {env.num_envs} environments, but num_envs is {num_envs}; set one to the other")
    return SimulatorPool(env, seed=seed, device=device)


def _made(env_id: Any, env_kwargs: Mapping[str, Any], num_envs: int, device: str) -> Any:
    if env_id in BUILT_IN:
        if env_kwargs:
            raise ValueError(f"env_backend: device has {env_id} without options; remove env_kwargs")
        module, _, name = BUILT_IN[env_id].partition(":")
        return getattr(import_named(f"{HOME}.{module}", env_id, "env_id"), name)()
    if not callable(env_id) and module_in(env_id) is None:
        raise ValueError(f"env_backend: device does not have {env_id}; {_offer()}")
    creator = env_id if callable(env_id) else load_object(env_id, "env_id", approved=is_built_in(env_id))
    offered = {"num_envs": num_envs, "device": device}
    accepted = {name: offered[name] for name in offered if name in parameters_of(creator)}
    return creator(**{**accepted, **env_kwargs})


def _offer() -> str:
    names = ", ".join(name.rpartition(":")[2] for name in BUILT_IN)
    return f"it has {names}, and your classes and functions as module:Name"
