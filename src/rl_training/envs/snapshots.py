"""Saves and restores the state of one environment in the middle of an episode."""

import math
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import FrameStackObservation, OrderEnforcing, PassiveEnvChecker, TimeLimit

from rl_training.envs.atari import AtariGame
from rl_training.envs.creation.lending import KeptOpen
from rl_training.envs.masks import ActionMasks
from rl_training.envs.spaces import LibrarySpaces
from rl_training.envs.tasks.combination_lock import CombinationLock
from rl_training.envs.tasks.fixed_horizon import FixedHorizonCartPole
from rl_training.envs.tasks.goals import BitFlip, PointGoal
from rl_training.envs.tasks.hidden_velocity import CartPoleNoVelocity, PendulumNoVelocity
from rl_training.envs.tasks.pixels import Catch, CueMemory

# Their state is their plain attributes.
ATTRIBUTE_ENVS = (
    FixedHorizonCartPole, Catch, CueMemory, CartPoleNoVelocity, PendulumNoVelocity, CombinationLock, PointGoal, BitFlip,
)  # fmt: skip
SUPPORTED_WRAPPERS = (TimeLimit, OrderEnforcing, FrameStackObservation, LibrarySpaces, ActionMasks)
WITHOUT_EFFECT = (KeptOpen, PassiveEnvChecker)
SEQUENCES = {"tuple": tuple, "list": list, "deque": deque}

# mj_step leaves the body poses from the start of its last substep; Ant and Humanoid compute velocities from them.
STALE_POSES = ("xpos", "xipos")


def is_exact_for(env: gym.Env[Any, Any]) -> bool:
    """Whether snapshots of this environment are exact; a test checks every supported family bit for bit."""
    *wrappers, core = layers(env)
    is_classic = type(core).__module__.startswith("gymnasium.envs.classic_control.")
    is_supported = is_classic or _is_mujoco(core) or type(core) in (*ATTRIBUTE_ENVS, AtariGame)
    return is_supported and all(type(layer) in SUPPORTED_WRAPPERS for layer in wrappers)


def save_state(env: gym.Env[Any, Any]) -> dict[str, Any]:
    """Returns the state of the environment and its wrappers as nested dicts of arrays and JSON values."""
    chain = list(layers(env))
    state: dict[str, Any] = {
        "built_of": [type(layer).__name__ for layer in chain],
        "layers": {str(depth): _attributes(layer) for depth, layer in enumerate(chain)},
    }
    if _is_mujoco(chain[-1]):
        state["mujoco"] = _mujoco_state(chain[-1])
    if isinstance(chain[-1], AtariGame):
        state["tape"], state["memory"] = chain[-1].action_history(), chain[-1].ram()
    return state


def restore_state(env: gym.Env[Any, Any], state: dict[str, Any]) -> None:
    """Restores a saved state into a freshly reset environment; raises ValueError if it does not match."""
    chain = list(layers(env))
    names = [type(layer).__name__ for layer in chain]
    if names != list(state["built_of"]):
        raise ValueError(f"it consisted of {', '.join(state['built_of'])}, now it consists of {', '.join(names)}")
    for depth, layer in enumerate(chain):
        for name, saved in state["layers"].get(str(depth), {}).items():
            current = vars(layer).get(name)
            if isinstance(current, np.random.Generator):
                current.bit_generator.state = saved
            else:
                vars(layer)[name] = _decode(saved)
    if _is_mujoco(chain[-1]):
        _set_mujoco_state(chain[-1], state["mujoco"])
    if isinstance(chain[-1], AtariGame):
        chain[-1].replay_actions(state["tape"], state["memory"])


def to_numpy(state: Any) -> Any:
    """Copies a saved state and converts its tensors to NumPy arrays."""
    if isinstance(state, Mapping):
        return {name: to_numpy(value) for name, value in state.items()}
    return np.asarray(state).copy() if hasattr(state, "__array__") else state


def layers(env: gym.Env[Any, Any]) -> Iterator[gym.Env[Any, Any]]:
    """Yields the wrappers from the outermost inwards, then the environment; AtariGame saves the game it wraps.

    Wrappers that change nothing are left out, so that an object and an id of the same environment have equal states.
    """
    while isinstance(env, gym.Wrapper) and not isinstance(env, AtariGame):
        if type(env) not in WITHOUT_EFFECT:
            yield env
        env = env.env
    yield env


def _is_mujoco(core: gym.Env[Any, Any]) -> bool:
    module = type(core).__module__
    return module.startswith("gymnasium.envs.mujoco.") and module.endswith("_v5")


def _attributes(layer: gym.Env[Any, Any]) -> dict[str, Any]:
    """Returns plain attributes and random generators; construction restores the rest (spaces, models, screens)."""
    return {
        name: value.bit_generator.state if isinstance(value, np.random.Generator) else _encode(value)
        for name, value in vars(layer).items()
        if isinstance(value, np.random.Generator) or _is_plain(value)
    }


def _is_plain(value: Any) -> bool:
    if type(value) in SEQUENCES.values():
        return all(_is_plain(item) for item in value)
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.kind in "biuf"
    return value is None or isinstance(value, (bool, int, float, str))


def _encode(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, np.generic):  # keeps its precision
        return {"type": "scalar", "value": np.array(value)}
    if type(value) in SEQUENCES.values():
        items = {str(i): _encode(item) for i, item in enumerate(value)}
        return {"type": type(value).__name__, "length": len(value), "maxlen": getattr(value, "maxlen", None), **items}
    if isinstance(value, float) and not math.isfinite(value):  # not representable in JSON
        return {"type": "float", "value": str(value)}
    return value


def _decode(saved: Any) -> Any:
    if isinstance(saved, np.ndarray):
        return saved.copy()
    if not isinstance(saved, dict):
        return saved
    if saved["type"] == "scalar":
        return saved["value"][()]
    if saved["type"] == "float":
        return float(saved["value"])
    items = [_decode(saved[str(i)]) for i in range(saved["length"])]
    return deque(items, saved["maxlen"]) if saved["type"] == "deque" else SEQUENCES[saved["type"]](items)


def _mujoco_state(core: Any) -> dict[str, Any]:
    import mujoco

    kind = int(mujoco.mjtState.mjSTATE_INTEGRATION)
    integration = np.empty(mujoco.mj_stateSize(core.model, kind))
    mujoco.mj_getState(core.model, core.data, integration, kind)
    return {"integration": integration, **{name: getattr(core.data, name).copy() for name in STALE_POSES}}


def _set_mujoco_state(core: Any, saved: dict[str, Any]) -> None:
    import mujoco

    kind = int(mujoco.mjtState.mjSTATE_INTEGRATION)
    size = mujoco.mj_stateSize(core.model, kind)
    if saved["integration"].shape != (size,):
        raise ValueError(f"its physics state has {size} numbers, but {saved['integration'].size} were saved")
    mujoco.mj_setState(core.model, core.data, saved["integration"], kind)
    for name in STALE_POSES:
        getattr(core.data, name)[:] = saved[name]
