"""Wrappers that a config or a Python call names, applied in their order."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import gymnasium as gym

from rl_training.envs.checks.returned import accepts
from rl_training.messages import describe_error
from rl_training.modules import LOCAL, UntrustedModuleError, is_local, load_object, name_of, option_hint

TIME_LIMIT = "max_episode_steps"
Wrapper: TypeAlias = str | Mapping[str, Any] | Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]]


def split_time_limit(creator: Any, options: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """Returns the options for a class or function, and `max_episode_steps` if it does not take that itself.

    `gymnasium.make` has the same option for ids, also with -1 for no limit, which is None here.
    """
    rest = dict(options)
    if TIME_LIMIT not in rest or accepts(creator, TIME_LIMIT):
        return rest, None
    limit = rest.pop(TIME_LIMIT)
    return rest, None if limit == -1 else limit


def wrap(env: gym.Env[Any, Any], wrapper: Wrapper) -> gym.Env[Any, Any]:
    """Applies one wrapper; every error names it."""
    name = wrapper_name(wrapper)
    if is_local(name) and not callable(wrapper):
        raise ValueError(
            f"env_wrappers: a wrapper was given in Python as {name.removeprefix(LOCAL)} and cannot be created from its "
            "name; pass the wrapped environment in Python: load(RUN, env=…) or resume_training(RUN, env=…)"
        )
    options = {key: value for key, value in wrapper.items() if key != "wrapper"} if isinstance(wrapper, Mapping) else {}
    create = wrapper if callable(wrapper) else load_object(name, "env_wrappers")
    try:
        wrapped = create(env, **options)
    except UntrustedModuleError:
        raise
    except Exception as error:
        failure = describe_error(error) + option_hint(create, error, positional=1)
        raise ValueError(f"env_wrappers: {name} could not wrap the environment: {failure}") from error
    if not isinstance(wrapped, gym.Env):
        raise TypeError(f"env_wrappers: {name} must return an environment, got {type(wrapped).__name__}")
    return wrapped


def wrapper_name(wrapper: Wrapper) -> str:
    if isinstance(wrapper, Mapping):
        return str(wrapper.get("wrapper"))
    return wrapper if isinstance(wrapper, str) else name_of(getattr(wrapper, "func", wrapper))


def wrapper_list(wrappers: Wrapper | Sequence[Wrapper]) -> Sequence[Wrapper]:
    """Returns a list; a single wrapper becomes a list of one."""
    return [wrappers] if isinstance(wrappers, str | Mapping) or callable(wrappers) else wrappers
