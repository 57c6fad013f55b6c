"""The command line: `rl-training`. Torch is imported inside commands only, so that help comes at once."""

import os
import signal
import sys

from rl_training.cli.app import app
from rl_training.platforms import unsupported

__all__ = ["app", "main"]


def main() -> None:
    open_closed_streams()
    if (sentence := unsupported()) is not None:
        print(f"error: {sentence}", file=sys.stderr)
        sys.exit(2)
    # While training runs, the handler in experiment/run.py saves first.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    app(prog_name="rl-training")


def open_closed_streams() -> None:
    """Opens standard streams that the caller closed (`>&-`), so that no file of a run gets their numbers."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115
