"""Objects named as `module:Name` are imported only from approved modules, and the current folder comes last."""

import sys

import pytest

from rl_training import modules
from rl_training.modules import UntrustedModuleError, approve, load_object, module_in, search_path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setattr(modules, "_approved", set())
    (tmp_path / "own_parts.py").write_text("class Net:\n    class Inner: ...\n")
    yield tmp_path
    for name in ("own_parts", "own_broken", "own_needing"):
        sys.modules.pop(name, None)


def test_nothing_is_imported_before_it_is_approved(folder):
    with pytest.raises(UntrustedModuleError, match=r"network names the module 'own_parts'.*--trust own_parts"):
        load_object("own_parts:Net", "network")
    assert "own_parts" not in sys.modules
    approve(["own_parts"])
    assert load_object("own_parts:Net", "network").__name__ == "Net"
    assert load_object("own_parts:Net.Inner", "network").__name__ == "Inner"


def test_the_current_folder_is_searched_last(folder):
    (folder / "json.py").write_text("raise AssertionError('imported instead of the standard library')\n")
    approve(["json", "own_parts"])
    load_object("own_parts:Net", "network")
    assert sys.path[-1] == str(folder)
    assert sys.path[:-1] == [entry for entry in search_path() if entry != str(folder)]
    assert load_object("json:dumps", "callback")([1]) == "[1]"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("own_parts:Missing", "network 'own_parts:Missing' not found: own_parts has no Missing"),
        ("own_parts:net", "own_parts has no net; did you mean Net?"),
        ("own_parts:Net.Iner", "own_parts has no Net.Iner; did you mean Inner?"),
        ("own_parts.py:Net", "must name a module and not a file; write it without .py: 'own_parts:Net'"),
        ("own_absent:Net", "there is no module 'own_absent'; it is neither installed nor in"),
        ("own_broken:Net", "network 'own_broken:Net' could not be imported: ZeroDivisionError: division by zero"),
        ("own_needing:Net", "could not be imported: ModuleNotFoundError: No module named 'own_other'"),
        ("own_parts", "network must have the form module:Name, got 'own_parts'"),
    ],
)
def test_an_error_names_what_is_missing(folder, name, expected):
    (folder / "own_broken.py").write_text("1 / 0\n")
    (folder / "own_needing.py").write_text("import own_other\n")
    approve([name.partition(":")[0]])
    with pytest.raises((ValueError, ImportError)) as raised:
        load_object(name, "network")
    assert expected in str(raised.value)


@pytest.mark.parametrize(
    ("name", "module"),
    [("a.b:C", "a.b"), ("a:C.d", "a"), ("a", None), ("a:", None), (":C", None), ("a:b:c", None), ("http://x", None),
     ("a:B-v0", None), (3, None), (None, None)],
)  # fmt: skip
def test_the_module_of_a_name(name, module):
    assert module_in(name) == module
