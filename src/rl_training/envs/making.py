"""Creates environments."""

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import parse_env_id

from rl_training.envs.atari import is_atari, make_atari
from rl_training.envs.group import EnvError
from rl_training.envs.spaces import with_library_spaces
from rl_training.envs.spec import env_spec_of
from rl_training.messages import describe_error
from rl_training.types import EnvSpec

EXTRAS = {"gymnasium.envs.mujoco": "rl-training[mujoco]", "gymnasium.envs.box2d": "rl-training[box2d]"}  # by module


def spec_of(env_id: str, env_kwargs: Mapping[str, Any]) -> EnvSpec:
    env = make_env(env_id, env_kwargs)
    try:
        return env_spec_of(env)
    finally:
        env.close()


def make_env(
    env_id: str | Callable[..., gym.Env[Any, Any]], env_kwargs: Mapping[str, Any], *, training: bool = False,
    like: EnvSpec | None = None,
) -> gym.Env[Any, Any]:  # fmt: skip
    """Creates an environment from an id or a function.

    Atari games are preprocessed, with training settings if `training`; `preprocess: false` in `env_kwargs` turns
    this off. Spaces that differ from the library's are converted (see `spaces.py`); `like` is the spec
    of the run that the environment is for.
    """
    try:
        env = _make(env_id, env_kwargs, training=training)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:  # SystemExit, which would end the run without a message
        raise EnvError(f"environment {env_id} could not be created: {describe_error(error)}") from error
    return with_library_spaces(env, like)


def _make(
    env_id: str | Callable[..., gym.Env[Any, Any]], env_kwargs: Mapping[str, Any], *, training: bool
) -> gym.Env[Any, Any]:
    if callable(env_id):
        env = env_id(**env_kwargs)
        if not isinstance(env, gym.Env):
            raise TypeError(f"env_id must be an id or a function returning a gymnasium.Env, got {type(env).__name__}")
        return env
    _require_id(env_id)
    try:
        if is_atari(env_id):
            return make_atari(env_id, training=training, **env_kwargs)
        return gym.make(env_id, **{"disable_env_checker": True, **env_kwargs})
    except (gym.error.UnregisteredEnv, gym.error.DeprecatedEnv) as error:
        matches = ", ".join(map(repr, get_close_matches(env_id, list(gym.registry))))
        hint = f"Did you mean {matches}?" if matches else str(error)
        raise ValueError(f"env_id {env_id!r} not found. {hint}") from error
    except (gym.error.DependencyNotInstalled, ImportError) as error:
        module = str(getattr(gym.registry.get(env_id), "entry_point", ""))
        atari = "rl-training[atari]" if is_atari(env_id) else None
        extra = next((extra for family, extra in EXTRAS.items() if module.startswith(family)), atari)
        hint = f'run: pip install "{extra}"' if extra else str(error)
        raise ImportError(f"{env_id} needs a package that is not installed; {hint}") from error
    except TypeError as error:
        unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if unknown is None or unknown[1] not in env_kwargs:
            raise
        raise TypeError(f"env_kwargs: {env_id} has no option {unknown[1]!r}; remove or correct it") from error


def _require_id(env_id: str) -> None:
    module, colon, name = env_id.rpartition(":")
    try:
        parse_env_id(name)
        is_id = not colon or (":" not in module and all(module.split(".")))
    except gym.error.Error:
        is_id = False
    if not is_id:
        raise ValueError(f"env_id must be a Gymnasium id such as CartPole-v1, or my_module:MyEnv-v0, got {env_id!r}")
