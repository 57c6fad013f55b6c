"""Imports of objects that a config names as `module:Name`, and the files that such an import would run.

Nothing is imported unless its module was approved: by the user's own command or call, or by `trust`. The current folder
is searched last.
"""

import importlib
import inspect
import os
import pkgutil
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec
from pathlib import Path
from typing import Any

from rl_training.messages import describe_error, did_you_mean

NAME = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*(?:\.[^\W\d]\w*)*)")  # module:Name
LOCAL = "<local> "  # begins the name of an object that only its own script, notebook or function can create
_approved: set[str] = set()


class UntrustedModuleError(ValueError):
    """A file names a module to import that the user has not trusted."""


def module_in(name: object) -> str | None:
    """Returns the module of `module:Name`, or None for anything else."""
    match = NAME.fullmatch(name) if isinstance(name, str) else None
    return None if match is None else match[1]


def is_local(name: object) -> bool:
    """Whether this is the recorded name of an object that cannot be imported; see `name_of`."""
    return isinstance(name, str) and name.startswith(LOCAL)


def name_of(thing: Any) -> str:
    """Returns `module:Name` of a class or function that every process can import, else `<local> Name in module`."""
    module, name = str(getattr(thing, "__module__", "")), str(getattr(thing, "__qualname__", type(thing).__name__))
    found = getattr(sys.modules.get(module), name, None)
    if module != "__main__" and module_in(f"{module}:{name}") and found is thing and module_files(module) is not None:
        return f"{module}:{name}"
    return f"{LOCAL}{name.rpartition('.')[2].strip('<>')} in {module or 'this process'}"


def parameters_of(create: Any) -> Mapping[str, inspect.Parameter]:
    """Returns the parameters of a class or function by name; none for C code without a signature."""
    with suppress(ValueError, TypeError):
        return inspect.signature(create).parameters
    return {}


def option_hint(create: Any, error: Exception, *, positional: int = 0) -> str:
    """Returns the suggestion to append to the error of a call with a misspelt option, or an empty text.

    `create` is the class or function that was called; its first `positional` parameters are not options.
    """
    unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error)) if isinstance(error, TypeError) else None
    options = list(parameters_of(create))[positional:]
    return "" if unknown is None else did_you_mean(unknown[1], options)


def approve(modules: Iterable[str]) -> None:
    """Allows `load_object` to import these modules in this process."""
    _approved.update(modules)


def load_object(name: str, what: str, *, approved: bool = False) -> Any:
    """Imports `module:Name`; `what` describes it in errors, such as "network". `approved` names need no approval."""
    match = NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"{what} must have the form module:Name, got {name!r}")
    module, attribute = match.groups()
    if not approved and module not in _approved:
        raise UntrustedModuleError(
            f"{what} names the module {module!r}, which was not approved for import; if you trust its code, "
            f"add --trust {module} (trust={module!r} in Python)"
        )
    found: Any = import_named(module, name, what)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{what} {name!r} not found: {module} has no {attribute}{_similar(part, found)}")
        found = getattr(found, part)
    return found


def _similar(part: str, home: Any) -> str:
    names = {each.lower(): each for each in vars(home) if not each.startswith("_")} if hasattr(home, "__dict__") else {}
    near = [names[each] for each in get_close_matches(part.lower(), names, n=3)]
    return f"; did you mean {' or '.join(near)}?" if near else ""


def import_named(module: str, name: str, what: str) -> Any:
    """Imports a module that the user has named or trusted, from the current folder too; `name` is for errors."""
    add_current_folder()
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            if module.endswith(".py"):
                plain, folder = os.path.basename(name).replace(".py:", ":"), os.path.dirname(name)
                hint = f"write it without .py: {plain!r}" + (f", in the folder {folder}" if folder else "")
                raise ValueError(f"{what} {name!r} must name a module and not a file; {hint}") from None
            where = f"neither installed nor in {os.getcwd()}"
            raise ValueError(f"{what} {name!r}: there is no module {error.name!r}; it is {where}") from None
        raise ImportError(f"{what} {name!r} could not be imported: {describe_error(error)}") from error
    except Exception as error:
        raise ImportError(f"{what} {name!r} could not be imported: {describe_error(error)}") from error


def add_current_folder() -> None:
    """Appends the current folder to the path, after everything installed, to import a module that a user has named."""
    sys.path[:] = search_path()


def search_path() -> list[str]:
    """Returns the folders of Python's path, and the current folder after them."""
    here = []
    with suppress(OSError):  # the folder was deleted
        here = [os.getcwd()]
    return sys.path + [folder for folder in here if folder not in sys.path]


def module_files(name: str) -> tuple[Path, ...] | None:
    """Returns the files of the parent packages, outermost first, and of the module, with links resolved.

    None if a part is not found or is not a file: built-in modules, and modules in zip archives.
    """
    importlib.invalidate_caches()  # a file may be newer than the cached list of its folder
    files: list[Path] = []
    search: Iterable[str] | None = None  # None: sys.path
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        if not parts[end - 1] or (end > 1 and search is None):  # an empty name, or a module that is not a package
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
    for entry in search_path() if search is None else list(search):
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
