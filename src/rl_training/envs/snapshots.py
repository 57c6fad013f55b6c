"""One environment saved in the middle of an episode, as plain data, and put back."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import FrameStackObservation, OrderEnforcing, TimeLimit

from rl_training.envs.atari import AtariGame
from rl_training.envs.fixed_horizon import FixedHorizonCartPole
from rl_training.envs.pixels import Catch, CueMemory

OURS = (FixedHorizonCartPole, Catch, CueMemory)  # whose state is plain attributes
PROVEN_WRAPPERS = (TimeLimit, OrderEnforcing, FrameStackObservation)
SEQUENCES = {"tuple": tuple, "list": list, "deque": deque}

# mj_step leaves the body poses of its last substep's start, and Ant and Humanoid measure their speed from those.
STALE_POSES = ("xpos", "xipos")


def is_exact_for(env: gym.Env[Any, Any]) -> bool:
    """Whether this environment is of a family whose snapshots are proven bit for bit by a test."""
    *wrappers, core = layers(env)
    is_proven = _is_classic_control(core) or _is_mujoco(core) or type(core) in (*OURS, AtariGame)
    return is_proven and all(type(layer) in PROVEN_WRAPPERS for layer in wrappers)


def take(env: gym.Env[Any, Any]) -> dict[str, Any]:
    """The state of the whole wrapper chain: nested dicts of arrays and JSON values."""
    chain = list(layers(env))
    state: dict[str, Any] = {
        "built_of": [type(layer).__name__ for layer in chain],
        "layers": {str(depth): _attributes(layer) for depth, layer in enumerate(chain)},
    }
    if _is_mujoco(chain[-1]):
        state["mujoco"] = _mujoco_state(chain[-1])
    if isinstance(chain[-1], AtariGame):
        state["tape"], state["memory"] = chain[-1].tape(), chain[-1].memory()
    return state


def put_back(env: gym.Env[Any, Any], state: dict[str, Any]) -> None:
    """Lay a saved state over an environment that has been reset; ValueError where it is another environment's."""
    chain = list(layers(env))
    names = [type(layer).__name__ for layer in chain]
    if names != list(state["built_of"]):
        raise ValueError(f"it was built of {', '.join(state['built_of'])}, and is now of {', '.join(names)}")
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
        chain[-1].play_tape(state["tape"], state["memory"])


def with_arrays(state: Any) -> Any:
    """A copy of a saved state with a NumPy array in the place of every tensor."""
    if isinstance(state, Mapping):
        return {name: with_arrays(value) for name, value in state.items()}
    return np.asarray(state).copy() if hasattr(state, "__array__") else state


def layers(env: gym.Env[Any, Any]) -> Iterator[gym.Env[Any, Any]]:
    """The wrappers from the outside in, then the environment itself; AtariGame is one, and saves what it wraps."""
    while isinstance(env, gym.Wrapper) and not isinstance(env, AtariGame):
        yield env
        env = env.env
    yield env


def _is_classic_control(core: gym.Env[Any, Any]) -> bool:
    return type(core).__module__.startswith("gymnasium.envs.classic_control.")


def _is_mujoco(core: gym.Env[Any, Any]) -> bool:
    module = type(core).__module__
    return module.startswith("gymnasium.envs.mujoco.") and module.endswith("_v5")


def _attributes(layer: gym.Env[Any, Any]) -> dict[str, Any]:
    """Plain attributes and random generators; all else (spaces, models, screens) comes with construction."""
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
    if isinstance(value, np.generic):  # its width decides how later arithmetic rounds
        return {"type": "scalar", "value": np.array(value)}
    if type(value) in SEQUENCES.values():
        items = {str(i): _encode(item) for i, item in enumerate(value)}
        return {"type": type(value).__name__, "length": len(value), "maxlen": getattr(value, "maxlen", None), **items}
    if isinstance(value, float) and not math.isfinite(value):  # strict JSON has no word for it
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
        raise ValueError(f"its physics state has {size} numbers, and {saved['integration'].size} were saved")
    mujoco.mj_setState(core.model, core.data, saved["integration"], kind)
    for name in STALE_POSES:
        getattr(core.data, name)[:] = saved[name]
