"""The list of mutants fits the source, and the script reports which mutants were killed and which survived."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import util
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent
SOURCE = FOLDER.parents[1] / "src"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = util.spec_from_file_location("mutants_run", FOLDER / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def mutants(script) -> Any:
    return script.load_mutants()


def test_every_mutant_fits_the_source_and_parses(script, mutants):
    script.check_mutants(mutants, SOURCE)
    assert len(mutants) >= 100
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in mutants}) == len(mutants)
    assert {mutant.shown for mutant in mutants if mutant.old == mutant.new} == set()


def test_every_mutant_names_tests_that_exist(mutants):
    for test in {test for mutant in mutants for test in mutant.tests}:
        path, _, name = test.partition("::")
        assert (FOLDER.parent / path).exists(), test
        assert not name or f"def {name}(" in (FOLDER.parent / path).read_text(), test


def test_the_docs_name_the_list_and_no_number_of_mutants():
    page = (FOLDER.parents[1] / "docs" / "reliability.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith("| mutants of")]
    assert "`tests/mutants/mutants.yaml`" in row
    assert [cell.strip() for cell in row.split("|") if cell.strip()[:1].isdigit()] == ["0 survive"]


def test_at_most_two_mutants_are_called_equivalent(mutants):
    assert len([mutant for mutant in mutants if mutant.equivalent]) <= 2


def test_every_algorithm_has_mutants(mutants):
    files = {path.name for path in (SOURCE / "rl_training" / "algorithms").glob("*.py")} - {"__init__.py"}
    mutated = {mutant.file.removeprefix("algorithms/") for mutant in mutants}
    assert files - mutated == set()


@pytest.mark.parametrize(("text", "count"), [("x = 2\n", 0), ("x = 1\ny = 1\nx = 1\n", 2)])
def test_a_text_that_does_not_occur_exactly_once_is_refused(script, text, count):
    with pytest.raises(ValueError, match=f"part.py holds 'x = 1' {count} times, expected once"):
        script.Mutant("part.py", "x = 1", "x = 0", ("test_part.py",)).applied(text)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A package of one function with its test, a list of three mutants and the script."""
    for folder in ("src/rl_training", "tests/mutants"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src/rl_training/__init__.py").touch()
    (tmp_path / "src/rl_training/part.py").write_text("def double(x):\n    return 2 * x + 0\n")
    test = "from rl_training.part import double\n\ndef test_double():\n    assert double(2) == 4\n"
    (tmp_path / "tests/test_part.py").write_text(test)
    (tmp_path / "tests/mutants/run.py").write_text((FOLDER / "run.py").read_text())
    (tmp_path / "tests/mutants/mutants.yaml").write_text(
        "part.py:\n  tests: [test_part.py]\n  mutants:\n"
        "    - {old: 2 * x, new: 3 * x}\n    - {old: 2 * x, new: x * x}\n"
        "    - {old: ' + 0', new: ' - 0', equivalent: adding zero changes nothing}\n"
    )
    return tmp_path


def run(project: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "tests/mutants/run.py", "--jobs", "2", "--preload", "", "--out", "found.json"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # plugins take longer than these tests
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=100)


def test_survivors_are_reported_and_fail_the_run(project):
    ended = run(project)
    found = json.loads((project / "found.json").read_text())
    assert (found["mutants"], found["killed"], found["survived"]) == (3, 1, 2)
    assert found["unexplained"] == ["part.py: 2 * x  ->  x * x"]
    assert "survived: part.py: + 0  ->  - 0  (equivalent: adding zero changes nothing)" in ended.stdout
    assert ended.returncode == 1
    assert "2 * x + 0" in (project / "src/rl_training/part.py").read_text()


def test_tests_that_fail_without_a_mutant_stop_the_run(project):
    (project / "tests/test_part.py").write_text("def test_it():\n    assert 1 == 2\n")
    ended = run(project)
    assert ended.returncode == 2
    assert "without a mutant these tests fail or take over 60 s: test_part.py" in ended.stderr
