"""Suggestions for a mistyped environment id."""

import re
import sys
from difflib import get_close_matches
from typing import Any

import gymnasium as gym

from rl_training.modules import module_files


def suggestion(env_id: str) -> str:
    """Returns similar names and other forms of an id that was not found; empty if there are none."""
    module, colon, name = env_id.rpartition(":")
    known = _names_in(module) if colon else list(gym.registry)
    near = [
        each for each in get_close_matches(name, known) if get_close_matches(_unversioned(name), [_unversioned(each)])
    ]
    matches = ", ".join(repr(f"{module}{colon}{each}") for each in near)
    did_you_mean = f"Did you mean {matches}?" if matches else ""
    if not colon:
        return " ".join(filter(None, (did_you_mean, _form_hint(env_id))))
    if matches:
        return did_you_mean
    return f"{module} has {', '.join(known[:10])}" if known else f"{module} has no environments"


def _unversioned(env_id: str) -> str:
    return re.sub(r"-v\d+$", "", env_id)


def _form_hint(env_id: str) -> str:
    """Returns what to write for a module, its file, or `module.Class`; empty for other names. Imports nothing."""
    name = env_id.removesuffix(".py")
    module, dot, attribute = name.rpartition(".")
    if not all(part.isidentifier() for part in name.split(".")):
        return ""
    if module_files(name):
        return f"{name} is a module; name a class or id in it, too: '{name}:Class'"
    return (
        f"Write '{module}:{attribute}' for {attribute} of the module {module}" if dot and module_files(module) else ""
    )


def _names_in(module: str) -> list[str]:
    """Returns the environment classes of a module, and the ids that it registers."""
    found = [name for name, each in vars(sys.modules[module]).items() if _is_env_class(each)]
    for env_id, registered in gym.registry.items():
        creator: Any = registered.entry_point
        home = str(creator).partition(":")[0] if isinstance(creator, str) else getattr(creator, "__module__", "")
        found += [env_id] if home == module or home.startswith(f"{module}.") else []
    return found


def _is_env_class(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, gym.Env) and not issubclass(thing, gym.Wrapper)
