"""Help is fast and describes every command and option."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from typing import Any

import pytest
import typer

from rl_training import __version__
from rl_training.cli import app

COMMANDS: list[list[str]] = [
    [], ["train"], ["resume"], ["evaluate"], ["predict"], ["configs"], ["configs", "ls"], ["configs", "show"],
    ["configs", "copy"], ["algos"], ["explain"], ["doctor"], ["bench"], ["compare"], ["report"], ["data"],
    ["data", "check"], ["data", "show"], ["data", "convert"], ["data", "collect"], ["dream"], ["tune"], ["verify"],
]  # fmt: skip

ALL_HELP = """
import sys
from typer.testing import CliRunner
from rl_training.cli import app
for command in {commands}:
    result = CliRunner().invoke(app, [*command, "--help"])
    assert result.exit_code == 0 and "Usage:" in result.stdout, (command, result.output)
unwanted = {{"torch", "numpy", "gymnasium", "pydantic", "rich", "ray", "submitit", "optuna"}}
assert not unwanted & set(sys.modules), unwanted & set(sys.modules)
"""


def test_help_of_every_command_imports_nothing_heavy():
    asked = subprocess.run([sys.executable, "-c", ALL_HELP.format(commands=COMMANDS)], capture_output=True, text=True)
    assert asked.returncode == 0, asked.stderr


def test_h_is_short_for_help(cli):
    assert cli("configs", "ls", "-h").stdout == cli("configs", "ls", "--help").stdout != ""


def test_help_takes_less_than_half_a_second():
    # Processor time, the best of five: other processes on the machine are not ours to answer for.
    assert any(seconds_of_help() < 0.5 for _ in range(5))


def seconds_of_help() -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "rl_training.cli", "train", "--help"], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def all_commands(command: Any, name: str = "rl-training") -> list[tuple[str, Any]]:
    inner = getattr(command, "commands", {})
    return [(name, command), *(each for key, value in inner.items() for each in all_commands(value, f"{name} {key}"))]


@pytest.mark.parametrize(("name", "command"), all_commands(typer.main.get_command(app)))
def test_every_command_and_option_has_help_text(name, command):
    assert command.help
    assert [parameter.name for parameter in command.params if not parameter.help] == []


def test_no_arguments_print_help(cli):
    result = cli()
    assert (result.exit_code, result.stdout.split(maxsplit=1)[0]) == (0, "Usage:")


def test_version(cli):
    assert cli("--version").stdout == f"rl-training {__version__}\n"


def test_the_error_for_a_misspelt_command_names_the_nearest(cli):
    result = cli("trian")
    assert result.exit_code == 2
    assert "'train'" in result.stderr


def test_nobody_reading_on_is_no_error():
    read, write = os.pipe()
    os.close(read)
    asked = subprocess.run(
        [sys.executable, "-m", "rl_training.cli", "configs", "ls"], stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert "rror" not in asked.stderr


@pytest.mark.parametrize(("arguments", "code"), [(["--version"], 0), (["configs", "ls"], 0), (["tran"], 2)])
def test_the_package_runs_as_the_command(arguments: list[str], code: int):
    asked = [
        subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True)
        for module in ("rl_training", "rl_training.cli")
    ]
    outputs = [(each.returncode, each.stdout, each.stderr) for each in asked]
    assert outputs[0] == outputs[1]
    assert outputs[0][0] == code
    assert any(outputs[0][1:])
