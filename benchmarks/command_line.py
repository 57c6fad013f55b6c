"""Runs `rl-training` commands in single-threaded processes, so that several can run at the same time."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from typing import Any

COMMAND = (sys.executable, "-m", "rl_training.cli")
SINGLE_THREADED = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def ask(arguments: list[str]) -> dict[str, Any]:
    """Returns the JSON object that a command prints."""
    ended = subprocess.run([*COMMAND, *arguments], env=SINGLE_THREADED, capture_output=True, text=True)
    if ended.returncode != 0:
        raise RuntimeError(f"{shown(arguments)} ended with {ended.returncode}:\n{ended.stderr.strip()}")
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


def shown(arguments: list[str]) -> str:
    """The command as typed in a shell."""
    return shlex.join(["rl-training", *arguments])
