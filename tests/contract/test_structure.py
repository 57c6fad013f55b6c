"""The layers of the package: imports point down only, without circles, and files and functions stay short."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "rl_training"
LAYERS = [
    {"lazy_names", "messages", "platforms", "modules", "processes", "types", "schedules", "statistics", "streams"}
    | {"waiting", "control_groups", "files"},
    {"models", "data"},
    {"algorithms"},
    {"envs"},
    {"runtime"},
    {"experiment"},
    {"reporting"},
    {"api"},
    {"testing"},
    {"cli"},
    {"__main__"},
]
ALLOWED_UPWARD = {
    # The public contract has `train_<name>` in `rl_training.runtime` too; it is loaded on first use.
    ("rl_training.runtime", "rl_training.api.catalogue"),
    # Cells of a benchmark, trials of a study and seeds by an executor run the command line in a process of their own.
    ("rl_training.experiment.bench.cell", "rl_training.cli"),
    ("rl_training.experiment.tuning.trial", "rl_training.cli"),
    ("rl_training.experiment.seeds.jobs", "rl_training.cli"),
}
# These load modules by names that they compute: public names of a package, optional dependencies, the catalogue.
COMPUTED_IMPORTS = {
    "rl_training.lazy_names",
    "rl_training.modules",
    "rl_training.data.extras",
    "rl_training.algorithms",
}
NEWER_THAN_PYTHON_3_10 = {  # names of `typing`
    "LiteralString", "Never", "NotRequired", "Required", "Self", "TypeVarTuple", "Unpack", "assert_never", "override",
}  # fmt: skip
MODULES = {
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(SOURCE.rglob("*.py"))
}


def layer(module: str) -> int:
    part = module.split(".")[1]
    return next(number for number, parts in enumerate(LAYERS) if part in parts)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(module: str, tree: ast.AST) -> Iterator[str]:
    """The modules of this package that a module names: by import, relative import, or as a string to load."""
    package = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("rl_training."))
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            home = ".".join([*parents, *filter(None, [node.module])])
            if home.split(".")[0] == "rl_training":
                yield from (defining_module(home, alias.name) for alias in node.names if alias.name != "__version__")
        elif isinstance(node, ast.Constant) and re.fullmatch(r"rl_training(\.\w+)+(:\w+)?", str(node.value)):
            yield existing_module(str(node.value).partition(":")[0])


def existing_module(name: str) -> str:
    """The longest prefix of a dotted name that is a module."""
    while name not in MODULES:
        name = name.rpartition(".")[0]
    return name


def defining_module(home: str, name: str) -> str:
    """The module that `from home import name` depends on: `home`, its submodule, or where a package found the name."""
    if f"{home}.{name}" in MODULES:
        return f"{home}.{name}"
    if MODULES[home].name != "__init__.py":
        return home
    if home == "rl_training":
        return "rl_training.api"
    found = getattr(import_module(home), name)
    return found.__name__ if isinstance(found, ModuleType) else getattr(found, "__module__", home)


@cache
def graph() -> dict[str, set[str]]:
    """Each module and the modules that it imports, without the edges that are allowed to point up."""
    found = {module: set(imports(module, parsed(path))) for module, path in MODULES.items()}
    return {
        module: {name for name in names if name not in (module, "rl_training") and (module, name) not in ALLOWED_UPWARD}
        for module, names in found.items()
        if module != "rl_training"
    }


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("import rl_training.cli.app", "rl_training.cli.app"),
        ("from rl_training.cli import app", "rl_training.cli.app"),
        ("from rl_training.cli.app import app", "rl_training.cli.app"),
        ("from rl_training import cli", "rl_training.cli"),
        ("from rl_training import SAC", "rl_training.api"),
        ("from rl_training.algorithms import SACAlgorithm", "rl_training.algorithms.sac"),
        ("from ..cli import app", "rl_training.cli.app"),
        ("from .. import cli", "rl_training.cli"),
        ("from . import state", "rl_training.runtime.state"),
        ("def later():\n    from rl_training.cli.app import app", "rl_training.cli.app"),
        ('import_module("rl_training.cli.app")', "rl_training.cli.app"),
        ('gym.register("A-v0", entry_point="rl_training.cli.app:app")', "rl_training.cli.app"),
    ],
)
def test_every_kind_of_import_is_seen(line, expected):
    assert list(imports("rl_training.runtime.engine", ast.parse(line))) == [expected]


def test_imports_point_down_only():
    upward = [
        f"{module} imports {name}" for module, names in graph().items() for name in names if layer(name) > layer(module)
    ]
    assert upward == []


def test_modules_are_loaded_by_computed_names_in_few_places_only():
    calling = {
        module
        for module, path in MODULES.items()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", getattr(node.func, "attr", "")) in ("import_module", "__import__")
        and not isinstance(node.args[0], ast.Constant)
    }
    assert calling == COMPUTED_IMPORTS


def test_no_imports_form_a_circle():
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        pytest.fail(f"import circle: {' -> '.join(error.args[1])}")


def test_the_experiment_folder_stays_small_and_flat():
    folder = SOURCE / "experiment"
    modules = [path.stem for path in folder.glob("*.py") if path.name != "__init__.py"]
    assert len(modules) <= 18, modules
    assert max(depth(f"rl_training.experiment.{name}") for name in modules) <= 8


def depth(module: str) -> int:
    """The number of modules of `experiment` on the longest chain of imports that starts at this one."""
    below = [name for name in graph()[module] if re.fullmatch(r"rl_training\.experiment\.\w+", name)]
    return 1 + max(map(depth, below), default=0)


def test_no_update_reads_a_number_on_the_host():
    reads = {"item", "cpu", "numpy", "tolist"}
    found = [
        f"{path.name} .{node.func.attr}()"
        for folder in ("algorithms", "models")
        for path in (SOURCE / folder).rglob("*.py")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in reads
    ]
    on_a_cpu = ["fused.py .numpy()", "fused.py .tolist()", "optimizer.py .item()"]  # none waits for a GPU
    assert sorted(found) == [*on_a_cpu, "updater.py .cpu()"]  # the last one loads a state


def test_nothing_that_could_run_a_strangers_code_is_used():
    unsafe = ("import pickle", "import dill", "cloudpickle", "weights_only=False", "allow_pickle=True", "yaml.load(",
              "extractall", "shell=True", "eval(", "exec(")  # fmt: skip
    found = [
        f"{module}: {word}"
        for module, path in MODULES.items()
        for word in unsafe
        if word in path.read_text().replace(".eval(", "")
    ]
    assert found == []


def test_files_are_short_enough_to_read():
    long = {module: lines for module, path in MODULES.items() if (lines := len(path.read_text().splitlines())) > 300}
    assert long == {}


def test_functions_are_short_enough_to_read():
    long = {
        f"{module}.{node.name}": lines
        for module, path in MODULES.items()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef) and (lines := (node.end_lineno or 0) - node.lineno + 1) > 40
    }
    assert long == {}


def test_typing_has_the_imported_names_in_python_3_10():
    newer = [
        f"{module}: {alias.name}"
        for module, path in MODULES.items()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom) and node.module == "typing"
        for alias in node.names
        if alias.name in NEWER_THAN_PYTHON_3_10
    ]
    assert newer == []


def test_docstrings_open_with_a_verb_or_a_noun():
    riddles = [
        f"{module}: {text.splitlines()[0]}"
        for module, path in MODULES.items()
        for node in ast.walk(parsed(path))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and (text := ast.get_docstring(node) or "").split(" ")[0] in ("What", "Of", "Whose")
    ]
    assert riddles == []


def test_the_source_uses_the_terms_of_the_field():
    old = re.compile(r"\b(rings?|told|tells?|chances?|doubts?)\b", re.IGNORECASE)
    found = [
        f"{module}:{number}: {line.strip()}"
        for module, path in MODULES.items()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if old.search(line)
    ]
    assert found == []
