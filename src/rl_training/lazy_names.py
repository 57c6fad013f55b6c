"""Public names of a package, imported on first use, so that importing the package itself is fast."""

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_names(package: str, file: str, *, made_by: str = "") -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` for a package whose public names are in its `__init__.pyi`.

    | line of the stub | meaning |
    |---|---|
    | `from home import name as name` | `name` is imported from `home` |
    | `class name`, `def name` | `name` is an attribute of the module `made_by` |
    """
    stub = Path(file).with_suffix(".pyi").read_text(encoding="utf-8")
    home_of = {name: home for home, name in re.findall(r"^from (\S+) import (\w+) as", stub, re.MULTILINE)}
    home_of |= dict.fromkeys(re.findall(r"^(?:class|def) (\w+)", stub, re.MULTILINE), made_by)

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[package], name, found)  # later uses skip this function
        return found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of} - {"lazy_names"})

    return get, names
