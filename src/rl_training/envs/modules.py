"""Finds the files that importing a module would run, without importing it or its parent packages."""

import hashlib
import importlib
import os
import pkgutil
import sys
import sysconfig
from collections.abc import Iterable
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import find_highest_version, get_env_id, parse_env_id

from rl_training.envs.atari import is_atari


def module_of(env_id: str) -> str | None:
    """Returns the module that Gymnasium imports for an id of the form `module:Id`."""
    name = env_id.removeprefix("ale_py:") if is_atari(env_id) else env_id  # such ids mean the same without it
    module, colon, _ = name.partition(":")
    return module if colon else None


def module_files(name: str) -> tuple[Path, ...] | None:
    """Returns the files of the parent packages, outermost first, and of the module, with links resolved.

    None if a part is not found, or is no file: built-in modules, and modules in zip archives.
    """
    importlib.invalidate_caches()  # a file may be newer than the cached list of its folder
    files: list[Path] = []
    search: Iterable[str] | None = None  # None: sys.path
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        if not parts[end - 1] or (end > 1 and search is None):  # an empty name, or a module that is no package
            return None
        spec = _find(".".join(parts[:end]), search)
        if spec is None:
            return None
        if spec.loader is not None:  # a namespace package has no loader and runs no code
            file = Path(spec.origin or "")
            if not spec.has_location or not file.is_file():
                return None
            files.append(file.resolve())
        search = spec.submodule_search_locations
    return tuple(files) or None


def _find(name: str, search: Iterable[str] | None) -> ModuleSpec | None:
    """Finds one module as `import` does; finders only locate it. `search` lists the folders of its parent package."""
    if search is None:
        for importer in (BuiltinImporter, FrozenImporter):
            if (spec := importer.find_spec(name)) is not None:
                return spec
    folders: list[str] = []
    for entry in sys.path if search is None else list(search):
        finder: Any = pkgutil.get_importer(entry or os.getcwd())
        spec = None if finder is None else finder.find_spec(name)
        if spec is not None and spec.loader is not None:
            return spec
        folders += [] if spec is None else spec.submodule_search_locations or []
    if folders:
        namespace = ModuleSpec(name, None, is_package=True)
        namespace.submodule_search_locations = folders
        return namespace
    editable = [each for each in sys.meta_path if _home(each).startswith("__editable__")]  # by setuptools
    found = (each.find_spec(name, None) for each in editable)
    return next((spec for spec in found if spec is not None), None)


def _home(finder: Any) -> str:
    return str(getattr(finder, "__module__", ""))


def env_source(env_id: str) -> dict[str, str] | None:
    """Returns module, file and SHA-256 of the file that defines the class or function of a registered environment.

    None for Python's own and installed packages, which change by a new version and not by an edit.
    """
    try:
        creator = _creator(env_id.rpartition(":")[2])
        module = str(creator.__module__)
        file = Path(str(sys.modules[module].__file__)).resolve()
        if any(file.is_relative_to(folder) for folder in _installed()):
            return None
        return {"module": module, "file": str(file), "sha256": _sha256(file)}
    except (gym.error.Error, AttributeError, KeyError, OSError):  # not registered, or not defined in a file
        return None


def _creator(env_id: str) -> Any:
    namespace, name, version = parse_env_id(env_id)
    if version is None:
        env_id = get_env_id(namespace, name, find_highest_version(namespace, name))
    entry_point: Any = gym.spec(env_id).entry_point
    if callable(entry_point):
        return entry_point
    module, _, attribute = str(entry_point).partition(":")
    return getattr(sys.modules[module], attribute)


def _installed() -> list[Path]:
    paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return [Path(path).resolve() for path in paths] + [Path(__file__).resolve().parents[1]]


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
