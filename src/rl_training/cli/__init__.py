"""The command line: `rl-training`. Torch is imported inside commands only, so that help comes at once."""

from __future__ import annotations

import signal
import sys
from typing import Any

from rl_training.cli.app import app

__all__ = ["app", "main"]


def main() -> None:
    signal.signal(signal.SIGTERM, _leave)  # while training runs, it saves first: see experiment/run.py
    app(prog_name="rl-training")


def _leave(number: int, frame: Any) -> None:
    sys.exit(128 + number)
