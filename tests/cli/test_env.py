"""`env check` on the command line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "environments.md"
BROKEN = Path(__file__).resolve().parents[1] / "envs" / "broken_envs.py"


@pytest.fixture(autouse=True)
def _in_the_folder_of_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())  # the command appends the current folder
    monkeypatch.chdir(BROKEN.parent)


def test_the_page_shows_what_is_printed(cli, tmp_path, monkeypatch):
    file = re.search(r"<!-- file: old_grid.py -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert file is not None
    (tmp_path / "old_grid.py").write_text(file[1])
    monkeypatch.chdir(tmp_path)
    result = cli("env", "check", "old_grid:OldGrid-v0")
    shown = re.search(r"env check old_grid:OldGrid-v0\n```\n\n```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert shown is not None
    speed = re.compile(r"[\d,]+ steps per second")
    assert speed.sub("N", result.stdout) == speed.sub("N", shown[1])
    assert (result.exit_code, result.stderr) == (1, "")


def test_a_good_environment_exits_with_0(cli):
    result = cli("env", "check", "broken_envs:BrokenGood-v0", "--steps", 50)
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["result", "steps", "resume", "env_workers"]


def test_the_report_as_json(cli):
    result = cli("env", "check", "broken_envs:BrokenOldStep-v0", "--steps", 50, "--json")
    report = json.loads(result.stdout)
    assert report.keys() == {
        "env", "ok", "mistakes", "notes", "steps", "episodes", "steps_per_second", "resume", "env_workers",
    }  # fmt: skip
    assert (result.exit_code, report["ok"], report["steps"]) == (1, False, 50)
    (mistake,) = report["mistakes"]
    assert mistake["code"] == "step_values:step"
    assert mistake["file"] == str(BROKEN)
    assert mistake["line"] > 0


def test_arguments_of_the_environment_are_set(cli):
    asked = ("env", "check", "broken_envs:BrokenNeedsArguments-v0", "--steps", 50)
    assert "the constructor needs size" in cli(*asked).stdout
    assert cli(*asked, "--set", "env_kwargs.size=3").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["CartPol-v1"], "env_id 'CartPol-v1' not found. Did you mean 'CartPole-v1'"),
        (["absent_module:Id-v0"], "absent_module"),
        (["broken_envs"], "broken_envs is a module; name a class or id in it, too: 'broken_envs:Class'"),
        (["broken_envs.py"], "broken_envs is a module; name a class or id in it, too: 'broken_envs:Class'"),
        (["broken_envs.Good"], "Write 'broken_envs:Good' for Good of the module broken_envs"),
        (["absent_module.Good"], "`absent_module.Good` doesn't exist"),
        (["CartPole-v1", "--set", "gamma=1"], "--set gamma: this command sets only env_kwargs, env_wrappers"),
        (["CartPole-v1", "--timeout", "0"], "timeout must be greater than 0 seconds, got 0.0"),
        (["CartPole-v1", "--set", "env_kwargs.no=1"], "no option 'no'"),
    ],
)
def test_a_wrong_command_is_one_sentence(cli, arguments, message):
    result = cli("env", "check", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_signal_ends_the_check_and_is_no_mistake(tmp_path, monkeypatch, start_command):
    (tmp_path / "slow_env.py").write_text(
        "import time\n"
        "from broken_envs import Good\n"
        "class Slow(Good):\n"
        "    def step(self, action):\n"
        "        print('stepping', flush=True)\n"
        "        time.sleep(60)\n"
    )
    monkeypatch.syspath_prepend(BROKEN.parent)
    monkeypatch.syspath_prepend(tmp_path)
    files = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start_command("env", "check", "slow_env:Slow", cwd=tmp_path, **files) as process:
        assert process.stderr.readline() == "stepping\n"
        process.terminate()
        printed, errors = process.communicate(timeout=60)
    assert (process.returncode, printed) == (143, "")
    assert "Traceback" not in errors
