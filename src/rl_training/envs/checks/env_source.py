"""Creates an environment to check from an id, an object, a class or a function."""

import re
from collections.abc import Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator

from rl_training.envs.checks.probing import Findings, Stop
from rl_training.envs.checks.user_code import place_of_creator, place_of_error
from rl_training.envs.creation.making import EnvFactory
from rl_training.envs.creation.modules import registered
from rl_training.envs.creation.wrapping import Wrapper, wrap, wrapper_list
from rl_training.envs.interrupts import CallTimeout
from rl_training.messages import describe_error
from rl_training.modules import load_object, module_in


class EnvSource:
    """Makes the environment; mistakes in its constructor become findings, and a wrong id raises its usual error."""

    def __init__(self, env: Any, env_kwargs: dict[str, Any], wrappers: Wrapper | Sequence[Wrapper] = ()) -> None:
        if not isinstance(env, (str, gym.Env)) and not callable(env):
            raise TypeError(f"env must be an id, a gymnasium.Env, a class or a function, got {type(env).__name__}")
        self.env, self.env_kwargs, self.is_id = env, env_kwargs, isinstance(env, str)
        self.wrappers = tuple(wrapper_list(wrappers))
        self.makes_new = not isinstance(env, gym.Env)
        if not self.makes_new and env_kwargs:
            raise ValueError("env_kwargs need an id, a class or a function; this is an environment object")
        named = type(env) if isinstance(env, gym.Env) else env
        self.name = env if self.is_id else getattr(named, "__qualname__", repr(env))

    def make(self, found: Findings) -> Any:
        try:
            env = self._made()
            for wrapper in self.wrappers if isinstance(env, gym.Env) else ():
                env = wrap(env, wrapper)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._report(error, found)
            raise Stop from error
        if not isinstance(env, gym.Env):
            old = any(each.__module__.partition(".")[0] == "gym" for each in type(env).__mro__)
            fix = "replace `import gym` by `import gymnasium as gym`" if old else "inherit from gymnasium.Env"
            found.add("no_env", f"{type(env).__name__} is not a gymnasium.Env: {fix}", place_of_creator(type(env)))
            raise Stop
        return env

    def _made(self) -> Any:
        if not self.makes_new:
            return self.env
        return EnvFactory(self.env, self.env_kwargs).make(training=False) if self.is_id else self.env(**self.env_kwargs)

    def _report(self, error: BaseException, found: Findings) -> None:
        """Adds an error of the user's constructor to the findings; raises others, such as an unknown id."""
        chain: list[BaseException] = [error]
        while (next_error := chain[-1].__cause__ or chain[-1].__context__) is not None and next_error not in chain:
            chain.append(next_error)
        raised = next((each for each in chain if place_of_error(each) is not None), None)
        creator = place_of_creator(self._creator())
        needed = re.search(
            r"missing \d+ required (?:positional|keyword-only) arguments?: (.*?)(?: was raised|$)", str(error)
        )
        if isinstance(error, CallTimeout):
            found.add("timeout:__init__", "`__init__` did not return in time", place_of_error(error) or creator)
        elif needed and creator is not None:
            names = re.findall(r"'(\w+)'", needed[1])
            fix = " ".join(f"--set env_kwargs.{name}=…" for name in names)
            sentence = (
                f"the constructor needs {', '.join(names)}: give it a default, or pass {fix} (env_kwargs in Python)"
            )
            found.add("constructor", sentence, creator)
        elif raised is not None:
            found.add("raised:__init__", f"`__init__` raised {describe_error(raised)}", place_of_error(raised))
        elif creator is not None and not isinstance(error, ImportError):
            found.add("raised:__init__", f"it cannot be created: {describe_error(error)}", creator)
        else:
            raise error

    def _creator(self) -> Any:
        if not self.is_id:
            return self.env
        try:
            if module_in(self.env) is not None and self.env.rpartition(":")[2] not in gym.registry:
                return load_object(self.env, "env_id")
            entry_point: Any = getattr(registered(self.env.rpartition(":")[2]), "entry_point", None)
            return entry_point if callable(entry_point) else load_env_creator(entry_point)
        except Exception:  # not registered, or its module cannot be imported
            return None

    def workers(self) -> str:
        """Describes whether worker processes can create the environment."""
        if not self.makes_new:
            return "no: an object cannot be created again in another process; pass a class or a function"
        creator = self._creator()
        if getattr(creator, "__module__", "") == "__main__":
            return "no: it is defined in the script or notebook; move it to a module"
        try:
            ForkingPickler.dumps(creator)
        except Exception:  # any error of pickling
            return "no: other processes cannot import it; define it at the top level of a module"
        return "yes: other processes can create it"
