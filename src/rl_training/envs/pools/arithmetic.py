"""Keeps the arithmetic of environments independent of the process that steps them."""

from collections.abc import Callable
from typing import Any


class UsualArithmetic:
    """Lets environments have denormal numbers while networks flush them to zero, because worker processes have them.

    `flush` turns flushing on and off, if the training uses it.
    """

    flush: Callable[[bool], Any] | None = None

    def __enter__(self) -> None:
        if self.flush is not None:
            self.flush(False)

    def __exit__(self, *_: object) -> None:
        if self.flush is not None:
            self.flush(True)


usual_arithmetic = UsualArithmetic()
