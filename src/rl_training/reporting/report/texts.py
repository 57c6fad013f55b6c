"""Numbers, times and paths of a report as text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from rl_training.statistics import Interval

LONGEST = 300  # characters of one value


def number_text(value: float, digits: int | None = None) -> str:
    return f"{value:,.{decimals([value]) if digits is None else digits}f}"


def interval_text(interval: Interval, digits: int | None = None) -> str:
    digits = decimals(interval) if digits is None else digits
    return f"{number_text(interval.low, digits)} to {number_text(interval.high, digits)}"


def decimals(values: Sequence[float]) -> int:
    """Decimals for about four digits."""
    largest = max(map(abs, values))
    return 1 if largest >= 100 else 2 if largest >= 1 or largest == 0 else 4


def duration_text(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def bytes_text(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"


def short_text(text: str, longest: int = LONGEST) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"


def relative_link(path: Path, page: Path) -> str:
    """A link from the page to a file; it starts with a dot, so that no name is taken for a protocol."""
    relative = os.path.relpath(path.resolve(), page.resolve().parent)
    return f"{'' if relative.startswith('..') else './'}{quote(os.fsencode(relative))}"
