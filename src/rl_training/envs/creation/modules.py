"""Modules of environments: which one an id imports, and the file that defines an environment."""

import hashlib
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, find_highest_version, get_env_id, load_env_creator, parse_env_id

from rl_training.envs.atari import is_atari
from rl_training.modules import module_files, module_in


def module_of(env_id: str) -> str | None:
    """Returns the module that Gymnasium imports for an id of the form `module:Id`."""
    name = env_id.removeprefix("ale_py:") if is_atari(env_id) else env_id  # such ids mean the same without it
    module, colon, _ = name.partition(":")
    return module if colon else None


def env_source(env_id: str) -> dict[str, str] | None:
    """Returns module, file and SHA-256 of the file that defines the class or function of a registered environment.

    None for Python's own and installed packages, which change by a new version and not by an edit.
    """
    try:
        creator = _creator(env_id)
        module = str(creator.__module__)
        file = Path(str(sys.modules[module].__file__)).resolve()
        if any(file.is_relative_to(folder) for folder in _installed()):
            return None
        return {"module": module, "file": str(file), "sha256": _sha256(file)}
    except (AttributeError, KeyError, OSError):  # not registered, or not defined in a file
        return None


def _creator(name: str) -> Any:
    module, _, env_id = name.rpartition(":")
    if module_in(name) and env_id not in gym.registry and hasattr(sys.modules[module], env_id):
        return getattr(sys.modules[module], env_id)  # a class or function
    entry_point: Any = getattr(registered(env_id), "entry_point", None)
    if not isinstance(entry_point, str):
        return entry_point
    module, _, attribute = entry_point.partition(":")
    return getattr(sys.modules[module], attribute)


def registered(env_id: str) -> EnvSpec | None:
    """Returns the registration of an id; without a version that of the highest, as `gymnasium.make` does."""
    try:
        namespace, name, version = parse_env_id(env_id)
    except gym.error.Error:
        return None
    highest = find_highest_version(namespace, name) if version is None else None
    return gym.registry.get(env_id if highest is None else get_env_id(namespace, name, highest))


def entry_point_of(env_id: str) -> str:
    """Returns the entry point of a registered id as text, `module:Class` unless it is a function."""
    return str(getattr(registered(env_id), "entry_point", ""))


def register_in_worker(known: EnvSpec) -> None:
    """Registers an id as in the parent process, unless the code that registers it has run here too.

    Its module comes first: packages such as ale_py register all their ids when they are imported, and Gymnasium
    warns of each that is registered already.
    """
    if known.id in gym.registry:
        return
    if isinstance(known.entry_point, str):
        with suppress(Exception):  # raised again when the environment is created
            load_env_creator(known.entry_point)
    gym.registry[known.id] = known


def _installed() -> list[Path]:
    paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return [Path(path).resolve() for path in paths] + [Path(__file__).resolve().parents[2]]


def changed_source(stored: Any) -> Path | None:
    """Returns the file that the module of a stored `env_source` has now, if its contents differ."""
    if not isinstance(stored, dict) or not all(isinstance(stored.get(key), str) for key in ("module", "file")):
        return None
    if stored["module"] == "__main__":
        file = Path(str(getattr(sys.modules["__main__"], "__file__", ""))).resolve()
        found = file if str(file) == stored["file"] else None
    else:
        found = (module_files(stored["module"]) or (None,))[-1]
    try:
        return found if found is not None and _sha256(found) != stored.get("sha256") else None
    except OSError:
        return None


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
