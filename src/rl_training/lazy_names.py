"""Public names of a package that are imported when they are first used, so that the package itself costs nothing."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_names(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package, whose names stand in its `__init__.pyi`, for type checkers too."""
    stub = Path(file).with_suffix(".pyi").read_text(encoding="utf-8")
    home_of = {name: home for home, name in re.findall(r"^from (\S+) import (\w+) as", stub, re.MULTILINE)}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[package], name, found)  # so that it is asked for once
        return found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of} - {"lazy_names"})

    return get, names
