"""Finds the file and line of the user's code that a message is about."""

import inspect
import os
import re
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from rl_training.envs.atari import AtariGame

# Code that only passes on what an environment returns or raises.
PASSING = tuple(
    f"{folder}{os.sep}" for folder in (Path(gym.__file__).parent, Path(np.__file__).parent, Path(__file__).parents[2])
)
STANDARD = f"{sysconfig.get_path('stdlib')}{os.sep}"
CYTHON = (".pyx", ".pxd", ".pxi")
ADDED = (TimeLimit, OrderEnforcing, PassiveEnvChecker)
CONVERSIONS = ("observation", "reward", "action")  # methods of Gymnasium's wrappers that users define instead of `step`


class Place(NamedTuple):
    file: str
    line: int

    def __str__(self) -> str:
        path = Path(self.file)
        with suppress(ValueError, OSError):  # another folder, or the current one is gone
            path = path.relative_to(Path.cwd())
        return f"{path}:{self.line}"


def place_of_method(env: Any, method: str) -> Place | None:
    """Returns the line of `def method` in the outermost user's class that defines it, else the line of the class."""
    for layer in _layers(env):
        wraps = isinstance(layer, gym.Wrapper) and method in ("reset", "step")
        for name in (method, *CONVERSIONS) if wraps else (method,):
            for each in _user_classes(type(layer)):
                if name in vars(each) and (place := _place_of_function(vars(each)[name])) is not None:
                    return place
    return place_of_class(env)


def _place_of_function(member: Any) -> Place | None:
    code = getattr(inspect.unwrap(getattr(member, "__func__", member)), "__code__", None)
    return None if code is None else Place(code.co_filename, code.co_firstlineno)


def place_of_class(env: Any) -> Place | None:
    """Returns the line of the outermost user's class."""
    classes = (each for layer in _layers(env) for each in _user_classes(type(layer)))
    found = (_source(each) for each in classes)
    return next((Place(file, first) for file, first, _ in filter(None, found)), None)


def place_of_creator(creator: Any) -> Place | None:
    """Returns the line of `__init__` in a class, or of a function, that the user has written."""
    if not isinstance(creator, type):
        own = creator is not None and not _is_library_module(getattr(creator, "__module__", None) or "")
        return _place_of_function(creator) if own else None
    for each in _user_classes(creator):
        place = _place_of_function(vars(each).get("__init__"))
        source = _source(each)
        if place is not None or source is not None:
            return place or (Place(source[0], source[1]) if source else None)
    return None


def place_of_attribute(env: Any, attribute: str) -> Place | None:
    """Returns the line that assigns an attribute in a user's class, else that of its `__init__`."""
    assigned = re.compile(rf"^\s*(self\.)?{attribute}\s*(:[^=]*)?=[^=]")
    for each in (each for layer in _layers(env) for each in _user_classes(type(layer))):
        file, first, lines = _source(each) or ("", 0, [])
        for number, line in enumerate(lines, first):
            if assigned.match(line):
                return Place(file, number)
    return place_of_method(env, "__init__")


def place_of_error(error: BaseException, *, installed: bool = True) -> Place | None:
    """Returns the last line outside of libraries on the way to an error.

    Lines of other installed packages count where there is no better one, unless `installed` is False.
    """
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return Place(error.filename, error.lineno)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.lineno and not is_library(frame.filename)]
    nearest = [frame for frame in own if not _is_installed(frame.filename)] or (own if installed else [])
    return Place(nearest[-1].filename, nearest[-1].lineno or 0) if nearest else None


def is_raised_here(error: BaseException) -> bool:
    """Whether code of this package has raised an error, such as a signal handler."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].filename.startswith(PASSING[2])


def is_library(file: str) -> bool:
    is_standard = file.startswith(STANDARD) and not _is_installed(file)
    is_compiled = file.endswith(CYTHON) and not Path(file).is_file()  # of a package, which has no such file
    return file.startswith(("<frozen", *PASSING)) or is_standard or is_compiled


def _is_installed(file: str) -> bool:
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)


def user_env(env: Any) -> Any:
    """Returns the environment without the outer wrappers that this package and `gymnasium.make` have added."""
    while isinstance(env, gym.Wrapper) and (type(env) in ADDED or _is_ours(type(env))):
        env = env.env
    return env


def has_user_code(env: Any) -> bool:
    return any(True for layer in _layers(env) for _ in _user_classes(type(layer)))


def _layers(env: Any) -> Iterator[Any]:
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env
    yield env


def _user_classes(kind: type) -> Iterator[type]:
    return (each for each in kind.__mro__ if each is not object and not _is_library_module(each.__module__))


def _is_library_module(module: str) -> bool:
    return module.partition(".")[0] in ("gymnasium", "rl_training", "ale_py", "typing", "builtins", "abc")


def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith("rl_training.") and kind is not AtariGame


def _source(kind: type) -> tuple[str, int, list[str]] | None:
    try:
        file = inspect.getsourcefile(kind)
        lines, first = inspect.getsourcelines(kind)
    except (OSError, TypeError):  # defined in a console
        return None
    return None if file is None else (file, first, lines)
