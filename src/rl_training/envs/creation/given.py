"""Environments and wrappers given in Python: what the config records of them, and what it cannot hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec as Registered

from rl_training.envs.atari import is_atari
from rl_training.envs.creation.fingerprints import of_function, of_object
from rl_training.envs.creation.lending import LentEnv
from rl_training.envs.creation.making import EnvFactory, MakeEnv
from rl_training.envs.creation.modules import env_source, module_of
from rl_training.envs.creation.wrapping import Wrapper
from rl_training.modules import LOCAL, approve, is_local, module_in, name_of

# A function or class returns a gymnasium.Env or, with env_backend="device", a TensorEnv or VectorSimulator.
Environment: TypeAlias = str | gym.Env[Any, Any] | Callable[..., Any]
EXPECTED = "an environment id, a gymnasium.Env, or a class or function that creates one"


@dataclass(frozen=True)
class Given:
    """An environment and its wrappers as they were given. `values` are the keys of the config that record them."""

    values: Mapping[str, Any]
    env: MakeEnv | LentEnv | None = None  # None: `env_id` creates it
    wrappers: tuple[Wrapper, ...] | None = None  # None: `env_wrappers` create them
    kind: str = "id"
    fingerprint: Mapping[str, Any] | None = None  # of an environment that the values do not describe

    @property
    def is_recorded(self) -> bool:
        """Whether the config holds everything, so that this object is not needed."""
        return self.env is None and self.wrappers is None

    def record(self) -> dict[str, Any]:
        """Returns how it was given, and whether the values in the config create it again."""
        wrappers = self.values.get("env_wrappers", ())
        names = [each.get("wrapper") if isinstance(each, Mapping) else each for each in wrappers]
        local = [name for name in (self.values["env_id"], *names) if is_local(name)]
        known = {} if self.fingerprint is None else {"fingerprint": dict(self.fingerprint)}
        return {"kind": self.kind, "can_be_repeated": not local, **known}

    def source(self) -> EnvFactory:
        """Returns how to create the environment."""
        name = str(self.values["env_id"])
        wrappers = self.values.get("env_wrappers", ()) if self.wrappers is None else self.wrappers
        kwargs = {} if isinstance(self.env, LentEnv) else self.values.get("env_kwargs", {})
        return EnvFactory(name if self.env is None else self.env, kwargs, tuple(wrappers), name)


def given_env(env: Any, wrappers: Iterable[Wrapper], env_kwargs: Mapping[str, Any] | None = None) -> Given:
    """Describes an environment given as an id, object, class or function, and the wrappers around it."""
    if isinstance(env, gym.Env):
        if env_kwargs:
            raise ValueError("env_kwargs are options of an id, class or function; an environment object has its own")
        found = _given_object(env)
    elif isinstance(env, str):
        approve(filter(None, [module_of(env)]))  # the user's own call names it
        found = Given({"env_id": env, "env_kwargs": dict(env_kwargs or {})})
    else:
        found = _given_function(env, dict(env_kwargs or {}))
    return _with_wrappers(found, tuple(wrappers)) if wrappers else found


def _given_function(env: Any, env_kwargs: dict[str, Any]) -> Given:
    if isinstance(env, gym.vector.VectorEnv) or (hasattr(env, "num_envs") and hasattr(env, "step")):
        raise TypeError(f"pass one environment, not a {type(env).__name__} of several; num_envs sets how many")
    if not callable(env):
        old = " of the old gym package; use gymnasium" if type(env).__module__.partition(".")[0] == "gym" else ""
        raise TypeError(f"env must be {EXPECTED}, got {type(env).__name__}{old}")
    create, options = _parts(env)
    name, kwargs = name_of(create), {**options, **env_kwargs}
    kind = "class" if isinstance(create, type) else "function"
    if is_local(name) or not _is_json(kwargs):
        fingerprint = of_function(create, options)
        return Given({"env_id": _local(name), "env_kwargs": env_kwargs}, env, kind=kind, fingerprint=fingerprint)
    approve([name.partition(":")[0]])
    return Given({"env_id": name, "env_kwargs": kwargs}, kind=kind)


def _given_object(env: gym.Env[Any, Any]) -> Given:
    spec = env.spec
    if spec is None or any(wrapper.kwargs is None for wrapper in spec.additional_wrappers):
        core = type(env.unwrapped)
        values = {"env_id": f"{LOCAL}{core.__name__} in {core.__module__}"}
        return Given(values, LentEnv(env), kind="object", fingerprint=of_object(env))
    recorded, make_again = _recorded(spec), partial(gym.make, spec)
    if recorded is None:
        return Given({"env_id": f"{LOCAL}{spec.id} in a script"}, LentEnv(env, make_again), kind="object")
    return Given(recorded, LentEnv(env, make_again, wrappers=len(recorded["env_wrappers"])), kind="object")


def _recorded(spec: Registered) -> dict[str, Any] | None:
    """Returns the config keys that create an environment like one of `gymnasium.make`, or None if there are none."""
    registered = gym.registry.get(spec.id)
    if registered is None:
        return None
    kwargs = {key: value for key, value in spec.kwargs.items() if registered.kwargs.get(key, spec) != value}
    if spec.max_episode_steps != registered.max_episode_steps:
        kwargs["max_episode_steps"] = -1 if spec.max_episode_steps is None else spec.max_episode_steps
    if is_atari(spec.id):
        kwargs["preprocess"] = False
    wrappers = [{"wrapper": each.entry_point, **(each.kwargs or {})} for each in spec.additional_wrappers]
    names = [module_in(each.entry_point) for each in spec.additional_wrappers]
    if not _is_json([kwargs, wrappers]) or any(name in (None, "__main__") for name in names):
        return None
    source = env_source(spec.id)
    module = "" if source is None or source["module"] == "__main__" else f"{source['module']}:"
    short = [each["wrapper"] if len(each) == 1 else each for each in wrappers]
    return {"env_id": f"{module}{spec.id}", "env_kwargs": kwargs, "env_wrappers": short}


def _with_wrappers(found: Given, wrappers: tuple[Wrapper, ...]) -> Given:
    inner, recorded = list(found.values.get("env_wrappers", ())), [_recorded_wrapper(each) for each in wrappers]
    described = replace(found, values={**found.values, "env_wrappers": [*inner, *recorded]})
    local = [name for name in recorded if is_local(name)]
    return replace(described, wrappers=(*inner, *wrappers)) if local else described


def _recorded_wrapper(wrapper: Any) -> Any:
    if isinstance(wrapper, str | Mapping):
        return wrapper
    if not callable(wrapper):
        raise TypeError(f"wrappers must be classes, functions or module:Wrapper, got {type(wrapper).__name__}")
    create, options = _parts(wrapper)
    name = name_of(create)
    if is_local(name) or not _is_json(options):
        return _local(name)
    approve([name.partition(":")[0]])
    return {"wrapper": name, **options} if options else name


def _parts(thing: Any) -> tuple[Any, dict[str, Any]]:
    """Returns the class or function of a `partial` with keywords alone, and the keywords."""
    return (thing.func, thing.keywords) if isinstance(thing, partial) and not thing.args else (thing, {})


def _local(name: str) -> str:
    module, _, attribute = name.partition(":")
    return name if is_local(name) else f"{LOCAL}{attribute} in {module}"


def _is_json(value: Any) -> bool:
    try:
        return bool(json.loads(json.dumps(value, allow_nan=False)) == value)
    except (TypeError, ValueError):
        return False
