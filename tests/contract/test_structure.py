"""The house: imports run down only, and updates stay on their device."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "rl_training"
FLOORS = [
    "lazy_names",
    "types",
    "schedules",
    "statistics",
    "streams",
    "models",
    "data",
    "algorithms",
    "envs",
    "runtime",
    "reporting",
    "experiment",
    "api",
    "cli",
]
SAME_FLOOR = [
    {"lazy_names", "types", "schedules", "statistics", "streams"},
    {"models", "data"},
    {"experiment", "reporting"},
]


def floor(name: str) -> int:
    for group in SAME_FLOOR:
        if name in group:
            return max(FLOORS.index(member) for member in group)
    return FLOORS.index(name)


def imports(path: Path) -> list[str]:
    """The parts of our package that a file imports, at its top or anywhere inside."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rl_training."):
            names.append(str(node.module))
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names if alias.name.startswith("rl_training.")]
    return [name.split(".")[1] for name in names]


def test_imports_run_down_only():
    upward = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for path in SOURCE.rglob("*.py")
        if path != SOURCE / "__init__.py"
        for name in imports(path)
        if floor(name) > floor(path.relative_to(SOURCE).parts[0].removesuffix(".py"))
    ]
    assert upward == []


def test_no_update_reads_a_number_on_the_host():
    reads = {"item", "cpu", "numpy", "tolist"}
    found = [
        f"{path.name}:{node.lineno} .{node.func.attr}()"
        for folder in ("algorithms", "models")
        for path in (SOURCE / folder).glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in reads
    ]
    assert [place for place in found if not place.startswith("updater.py")] == []


def test_nothing_that_could_run_a_strangers_code_is_used():
    unsafe = ("import pickle", "import dill", "cloudpickle", "weights_only=False", "allow_pickle=True", "yaml.load(",
              "extractall", "shell=True", "eval(", "exec(")  # fmt: skip
    found = [
        f"{path.relative_to(SOURCE)}: {word}"
        for path in SOURCE.rglob("*.py")
        for word in unsafe
        if word in path.read_text().replace(".eval(", "")
    ]
    assert found == []


def test_files_are_short_enough_to_read():
    long = {str(p.relative_to(SOURCE)): n for p in SOURCE.rglob("*.py") if (n := len(p.read_text().splitlines())) > 300}
    assert long == {}
