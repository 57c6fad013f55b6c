"""Algorithms of installed packages, by the entry-point group `rl_training.algorithms`.

A package adds its algorithms in its pyproject.toml; it is imported only when such an algorithm is used or listed:

    [project.entry-points."rl_training.algorithms"]
    my_algo = "my_package.my_module:MyAlgorithm"
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from rl_training.algorithms import ROWS
from rl_training.messages import describe_error, print_warning

GROUP = "rl_training.algorithms"


@cache
def plugins() -> dict[str, EntryPoint]:
    """Returns the entry points by name. A name of a built-in algorithm, or of an earlier package, is not replaced."""
    found: dict[str, EntryPoint] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda each: (each.name, _package(each))):
        if entry.name in ROWS:
            print_warning(
                f"the package {_package(entry)} adds an algorithm {entry.name!r}, which is the name of a built-in "
                f"one, and is ignored; use it as algo: {entry.value}"
            )
        elif entry.name in found:
            print_warning(
                f"the packages {_package(found[entry.name])} and {_package(entry)} both add an algorithm "
                f"{entry.name!r}; the first is used"
            )
        else:
            found[entry.name] = entry
    return found


def load_plugin(name: str) -> Any:
    """Imports the algorithm that an installed package adds under this name."""
    entry = plugins()[name]
    try:
        return entry.load()
    except Exception as error:
        raise ImportError(
            f"algorithm {name!r} of the package {_package(entry)} could not be imported from {entry.value}: "
            f"{describe_error(error)}"
        ) from error


def _package(entry: EntryPoint) -> str:
    return "unknown" if entry.dist is None else str(entry.dist.name)
