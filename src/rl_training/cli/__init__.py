"""The command line: `rl-training`. Torch is imported inside commands only, so that help comes at once."""

import signal
import sys

from rl_training.cli.app import app
from rl_training.platforms import unsupported

__all__ = ["app", "main"]


def main() -> None:
    if (sentence := unsupported()) is not None:
        print(f"error: {sentence}", file=sys.stderr)
        sys.exit(2)
    # While training runs, the handler in experiment/run.py saves first.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    app(prog_name="rl-training")
