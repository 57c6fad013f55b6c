"""Creates environments from ids, classes, functions and objects, with their wrappers."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing.reduction import ForkingPickler
from typing import Any, TypeAlias

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec as Registered
from gymnasium.envs.registration import parse_env_id
from gymnasium.wrappers import TimeLimit

from rl_training.envs.atari import is_atari, make_atari
from rl_training.envs.checks.first_steps import describe_failure, require_spaces
from rl_training.envs.checks.user_code import place_of_error
from rl_training.envs.creation.lending import LentEnv
from rl_training.envs.creation.modules import entry_point_of, module_of, register_in_worker, registered
from rl_training.envs.creation.quiet import hide_repeated_warnings, quiet_models
from rl_training.envs.creation.suggestions import suggestion
from rl_training.envs.creation.wrapping import split_time_limit, wrap, wrapper_name
from rl_training.envs.device.names import is_built_in
from rl_training.envs.masks import gives_masks, with_action_masks
from rl_training.envs.pools.group import EnvError, close_env
from rl_training.envs.spaces import with_library_spaces
from rl_training.envs.spec import env_spec_of
from rl_training.modules import (
    LOCAL,
    UntrustedModuleError,
    approve,
    import_named,
    is_local,
    load_object,
    module_in,
    name_of,
    option_hint,
    parameters_of,
)
from rl_training.types import EnvSpec

EXTRAS = {"gymnasium.envs.mujoco": "rl-training[mujoco]", "gymnasium.envs.box2d": "rl-training[box2d]"}  # by module
# Errors that explain themselves, unless the code of the environment raises them.
SELF_EXPLANATORY = (ValueError, TypeError, ImportError, OSError, gym.error.Error, EnvError)

MakeEnv: TypeAlias = Callable[..., gym.Env[Any, Any]]


@dataclass(frozen=True)
class EnvFactory:
    """Creates the environments of a run from an id, `module:Name`, a function or a lent object, with wrappers."""

    env: str | MakeEnv | LentEnv
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    wrappers: tuple[Any, ...] = ()  # `module:Wrapper`, {wrapper: module:Wrapper, option: value}, or functions
    name: str = ""  # recorded in the config
    action_range: Any = None  # [low, high] in place of infinite action bounds
    masks_in_info: bool = False  # `info` has masks of valid actions

    @classmethod
    def of(cls, env: str | MakeEnv | EnvFactory, kwargs: Mapping[str, Any] | None = None) -> EnvFactory:
        return env if isinstance(env, EnvFactory) else cls(env, dict(kwargs or {}))

    @property
    def is_single(self) -> bool:
        """Whether there can be only one such environment: an object that cannot be copied."""
        return isinstance(self.env, LentEnv) and self.env.cannot_copy is not None

    def __str__(self) -> str:
        return self.name or str(self.env)

    @property
    def _registered(self) -> Registered | None:
        return registered(self.env) if isinstance(self.env, str) else None

    def __getstate__(self) -> dict[str, Any]:
        """Pickles it with what its id stands for, because a worker process does not run the code that registered it."""
        return {**self.__dict__, "registered": self._registered}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickles it in a worker process, and approves the modules that the parent process approved."""
        known = state.pop("registered")
        self.__dict__.update(state)
        if known is not None:
            register_in_worker(known)
            hide_repeated_warnings(str(self.env))  # the parent process showed them
        named = [self.env, *map(wrapper_name, self.wrappers)]
        approve(module for name in named if (module := module_in(name)) is not None)

    def require_importable(self, where: str) -> None:
        """Raises TypeError if other processes cannot create it; `where` names them."""
        try:
            ForkingPickler.dumps(self)
            creator = self.env if self._registered is None else self._registered.entry_point
            module = creator.partition(":")[0] if isinstance(creator, str) else getattr(creator, "__module__", "")
            lost = module == "__main__" and not hasattr(sys.modules["__main__"], "__file__")
        except Exception:  # whatever pickling raises for objects of the user
            lost = True
        if lost:
            name = (self.name or (self.env if isinstance(self.env, str) else name_of(self.env))).removeprefix(LOCAL)
            raise TypeError(
                f"{where} cannot create {name}; move it to a module, import it from there and pass a class or function"
            )

    def make(self, *, training: bool) -> gym.Env[Any, Any]:
        """Creates an environment. With `training`, Atari games have their training settings, and an object is lent."""
        if not isinstance(self.env, LentEnv):
            env, applied = _make(self.env, self.kwargs, training=training), 0
        else:
            env, applied = self.env.take(training=training, **self.kwargs), self.env.wrappers
        for wrapper in self.wrappers[applied:]:
            env = wrap(env, wrapper)
        return env

    def with_masks(self) -> EnvFactory:
        """Returns a copy that adds the masks of `info` to the observations, if the first reset of a copy has one."""
        try:
            env = self.make(training=False)
            try:
                return replace(self, masks_in_info=gives_masks(env))
            finally:
                close_env(env)
        except Exception:  # the pool raises it again, with a message
            return self


def spec_of(
    env: str | EnvFactory, env_kwargs: Mapping[str, Any] | None = None, *, like: EnvSpec | None = None
) -> EnvSpec:
    made = make_env(env, env_kwargs, like=like)
    try:
        return env_spec_of(made)
    finally:
        close_env(made)


def make_env(
    env_id: str | MakeEnv | EnvFactory, env_kwargs: Mapping[str, Any] | None = None, *, training: bool = False,
    like: EnvSpec | None = None,
) -> gym.Env[Any, Any]:  # fmt: skip
    """Creates an environment from an id or a function.

    Atari games are preprocessed, with training settings if `training`; `preprocess: false` in `env_kwargs` turns
    this off. Spaces that differ from the library's are converted (see `spaces.py`); `like` is the spec
    of the run that the environment is for.
    """
    source = EnvFactory.of(env_id, env_kwargs)
    try:
        env = source.make(training=training)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit, which would end the run without a message
        if isinstance(error, SELF_EXPLANATORY) and place_of_error(error) is None:
            raise
        kind = ValueError if isinstance(error, (ValueError, TypeError)) else EnvError
        raise kind(f"environment {source} could not be created: {describe_failure(error)}") from error
    require_spaces(env)
    masked = with_action_masks(env, like, from_info=source.masks_in_info)
    return with_library_spaces(masked, like, source.action_range)


def _make(env_id: str | MakeEnv, env_kwargs: Mapping[str, Any], *, training: bool) -> gym.Env[Any, Any]:
    if callable(env_id):
        return _call(env_id, env_kwargs)
    creator = _resolved(env_id)
    if creator is not None:
        return _call(creator, env_kwargs)
    try:
        if is_atari(env_id):
            return make_atari(env_id, training=training, **env_kwargs)
        with quiet_models(env_id):
            env = gym.make(env_id, **{"disable_env_checker": True, **env_kwargs})
        hide_repeated_warnings(env_id)
        return env
    except (gym.error.UnregisteredEnv, gym.error.DeprecatedEnv) as error:
        raise ValueError(f"env_id {env_id!r} not found. {suggestion(env_id) or error}") from error
    except (gym.error.DependencyNotInstalled, ImportError) as error:
        module = entry_point_of(env_id)
        atari = "rl-training[atari]" if is_atari(env_id) else None
        extra = next((extra for family, extra in EXTRAS.items() if module.startswith(family)), atari)
        hint = f'run: pip install "{extra}"' if extra else str(error)
        raise ImportError(f"{env_id} needs a package that is not installed; {hint}") from error
    except TypeError as error:
        unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if unknown is None or unknown[1] not in env_kwargs:
            raise
        raise TypeError(f"env_kwargs: {env_id} has no option {unknown[1]!r}; remove or correct it") from error


def _call(creator: MakeEnv, env_kwargs: Mapping[str, Any]) -> gym.Env[Any, Any]:
    options, limit = split_time_limit(creator, env_kwargs)
    try:
        env = creator(**{**_of_one_environment(creator), **options})
    except TypeError as error:
        if not re.search(r"missing \d+ required|unexpected keyword argument", str(error)):
            raise
        hint = option_hint(creator, error) or "; see env_kwargs, or pass a function"
        raise TypeError(f"{name_of(creator).removeprefix(LOCAL)} could not be created: {error}{hint}") from error
    env = _as_gymnasium(env)
    if not isinstance(env, gym.Env):
        found = f"env_id must be an id or a function returning a gymnasium.Env, got {type(env).__name__}"
        raise TypeError(f"{found}; {_what_to_return(env)}")
    return env if limit is None else TimeLimit(env, limit)


def _as_gymnasium(env: Any) -> Any:
    """Wraps an environment of a device. Modules that import torch are loaded only if there is one."""
    base, simulator = (sys.modules.get(f"rl_training.envs.device.{name}") for name in ("base", "simulator"))
    if base is not None and isinstance(env, base.TensorEnv):
        from rl_training.envs.device.single import SingleEnv

        return SingleEnv(env)
    if simulator is not None and isinstance(env, simulator.VectorSimulator):
        from rl_training.envs.device.single import SingleSimulator

        return SingleSimulator(env)
    return env


def _of_one_environment(creator: MakeEnv) -> dict[str, Any]:
    """Arguments for one environment of a simulator, whose class or function requires `num_envs`."""
    if "rl_training.envs.device.simulator" not in sys.modules:
        return {}
    parameters = parameters_of(creator)
    if "num_envs" not in parameters or parameters["num_envs"].default is not inspect.Parameter.empty:
        return {}
    return {"num_envs": 1, **({"device": "cpu"} if "device" in parameters else {})}


def _what_to_return(got: Any) -> str:
    if got is None:
        return "the function returned None; return the environment"
    if isinstance(got, gym.vector.VectorEnv):
        return "return one environment; num_envs sets how many"
    return f"{type(got).__name__} must subclass gymnasium.Env" if hasattr(got, "step") else "return an environment"


def _resolved(env_id: str) -> MakeEnv | None:
    """Imports the module of an id; returns the class or function of `module:Name`, or None for a registered id."""
    if is_local(env_id):
        raise ValueError(
            f"the environment was given in Python as {env_id.removeprefix(LOCAL)} and cannot be created from its name; "
            "pass it again in Python: load(RUN, env=…), resume_training(RUN, env=…) or evaluate_checkpoint(RUN, env=…)"
        )
    _require_id(env_id)
    module, name = module_of(env_id), env_id.rpartition(":")[2]
    if module is None:
        return None
    if module_in(env_id) is None:
        import_named(module, env_id, "env_id")
        return None
    try:
        creator = load_object(env_id, "env_id", approved=is_built_in(env_id))
    except UntrustedModuleError:
        raise
    except ValueError:
        if module not in sys.modules:
            raise
        return None  # an id without its version
    if name in gym.registry:
        return None
    if not callable(creator):
        raise TypeError(f"env_id {env_id!r} must be a class or function that creates an environment, got {creator!r}")
    return creator


def _require_id(env_id: str) -> None:
    module, colon, name = env_id.rpartition(":")
    try:
        parse_env_id(name)
        is_id = not colon or (":" not in module and all(module.split(".")))
    except gym.error.Error:
        is_id = False
    if not is_id:
        forms = "CartPole-v1, my_module:MyEnv-v0 or my_module:MyEnv"
        raise ValueError(f"env_id must be a Gymnasium id such as {forms}, got {env_id!r}")
