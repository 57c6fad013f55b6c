"""The files of a module are found without importing it, and a changed source file is noticed."""

from __future__ import annotations

import subprocess
import sys
import zipfile

import gymnasium as gym
import pytest

from rl_training.envs.creation.modules import changed_source, env_source, module_of
from rl_training.modules import module_files

ENVIRONMENT = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Own(CartPoleEnv):
    pass

gymnasium.register("{id}", Own)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder on sys.path whose modules raise when they are imported."""
    monkeypatch.syspath_prepend(tmp_path)
    files = ("alone.py", "package/__init__.py", "package/inner/__init__.py", "package/inner/leaf.py",
             "spread/deeper/leaf.py", "my-env.py")  # fmt: skip
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("raise AssertionError('imported')\n")
    return tmp_path.resolve()


@pytest.mark.parametrize(
    ("module", "files"),
    [
        ("alone", ["alone.py"]),
        ("my-env", ["my-env.py"]),
        ("package", ["package/__init__.py"]),
        ("package.inner.leaf", ["package/__init__.py", "package/inner/__init__.py", "package/inner/leaf.py"]),
        ("spread.deeper.leaf", ["spread/deeper/leaf.py"]),
    ],
)
def test_the_files_include_those_of_every_parent_package(folder, module, files):
    before = set(sys.modules)
    assert module_files(module) == tuple(folder / file for file in files)
    assert set(sys.modules) == before


@pytest.mark.parametrize(
    "module",
    ["", ".", "..alone", "alone.", "alone.inner", "package..inner", "absent", "package.absent", "spread", "sys", "os",
     "package/inner", "alone\0", "alone ", " alone", "\udc80", "a" * 10_000],
)  # fmt: skip
def test_a_name_without_a_file_of_its_own_has_none(folder, module):
    assert module_files(module) is None


def test_a_module_in_a_zip_archive_has_no_file(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("zipped.py", "")
    monkeypatch.syspath_prepend(tmp_path / "archive.zip")
    assert module_files("zipped") is None


def test_the_file_found_is_the_one_that_python_imports(folder):
    """Compared with Python's own search, for packages of the installation."""
    for module in ("json.tool", "email.mime.text", "gymnasium.envs.toy_text", "numpy", "yaml"):
        code = f"import importlib.util; print(importlib.util.find_spec({module!r}).origin)"
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert str((module_files(module) or ("nothing",))[-1]) == found.stdout.strip()


def test_a_link_counts_as_the_file_it_leads_to(folder):
    (folder / "linked.py").symlink_to(folder / "alone.py")
    assert module_files("linked") == (folder / "alone.py",)


def test_a_new_file_earlier_on_the_path_is_found_at_once(folder, monkeypatch, tmp_path_factory):
    assert module_files("alone") == (folder / "alone.py",)
    earlier = tmp_path_factory.mktemp("earlier").resolve()
    monkeypatch.syspath_prepend(earlier)
    (earlier / "alone.py").write_text("")
    assert module_files("alone") == (earlier / "alone.py",)


@pytest.mark.parametrize(
    ("env_id", "module"),
    [
        ("CartPole-v1", None),
        ("ALE/Pong-v5", None),
        ("ale_py:ALE/Pong-v5", None),
        ("ale_py:PongNoFrameskip-v4", None),
        ("mine:Own-v0", "mine"),
        ("mine.inner:ALE/Pong-v5", "mine.inner"),
        ("mine:PongNoFrameskip-v4", "mine"),
        ("ale_py:mine:PongNoFrameskip-v4", "mine"),
        ("ale_py:Other-v0", "ale_py"),
        (":Own-v0", ""),
    ],
)
def test_the_module_of_an_id_is_what_gymnasium_would_import(env_id, module):
    assert module_of(env_id) == module


def test_the_source_of_an_environment_is_the_file_of_its_class(folder):
    (folder / "own_source.py").write_text(ENVIRONMENT.format(id="OwnSource-v0"))
    gym.make("own_source:OwnSource-v0").close()
    source = env_source("own_source:OwnSource-v0")
    assert source is not None
    assert source == env_source("own_source:OwnSource")  # the newest version
    assert (source["module"], source["file"]) == ("own_source", str(folder / "own_source.py"))
    assert changed_source(source) is None
    (folder / "own_source.py").write_text(ENVIRONMENT.format(id="OwnSource-v0") + "# edited\n")
    assert changed_source(source) == folder / "own_source.py"


def test_installed_environments_have_no_source():
    assert [env_source(each) for each in ("CartPole-v1", "Catch-v0", "Absent-v0", "not an id")] == [None] * 4


@pytest.mark.parametrize(
    "stored", [None, 3, [], {}, {"module": 1, "file": ""}, {"module": "..", "file": ""}, {"module": "__main__"}]
)
def test_a_record_that_is_damaged_is_ignored(stored):
    assert changed_source(stored) is None
