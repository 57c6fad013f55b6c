"""Systems that are not supported: one sentence, no traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest

AS_ON_WINDOWS = """
import multiprocessing.resource_tracker, multiprocessing.connection, signal, sys, typer, typer.core, pydantic, gymnasium
for name in ("fcntl", "rl_training"):
    sys.modules.pop(name, None)
sys.modules["fcntl"] = None
for name in ("SIGQUIT", "SIGALRM", "setitimer", "pthread_sigmask"):
    delattr(signal, name)
sys.platform = "win32"
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", AS_ON_WINDOWS + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("arguments", [["train", "ppo", "CartPole-v1"], ["--help"]])
def test_the_command_line_names_what_works_on_windows(arguments: list[str]):
    ended = run(f"sys.argv[1:] = {arguments}\nfrom rl_training.cli import main\nmain()")
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("error: rl-training runs on Linux and macOS, not on Windows itself;")


def test_python_names_what_works_on_windows():
    ended = run("import rl_training\ntry:\n    rl_training.PPO\nexcept ImportError as error:\n    print(error)")
    assert ended.stdout.startswith("rl-training runs on Linux and macOS, not on Windows itself"), ended.stderr
