"""Keeps the arithmetic of environments independent of the process that steps them."""

from collections.abc import Callable
from typing import Any


class UsualArithmetic:
    """Environments compute with denormal numbers in this block, as they do in worker processes.

    Training may flush them to zero. `flush` then turns this on and off.
    """

    flush: Callable[[bool], Any] | None = None

    def __enter__(self) -> None:
        if self.flush is not None:
            self.flush(False)

    def __exit__(self, *_: object) -> None:
        if self.flush is not None:
            self.flush(True)


usual_arithmetic = UsualArithmetic()
