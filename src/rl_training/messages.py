"""Warnings for the user, and the text of errors and durations."""

import errno
import logging
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

Warn = Callable[[str], None]
OPE_CAUTION = (
    "the estimate does not cover states that are missing in the data, and the interval does not show this. "
    "Use it to compare policies, not as an absolute value"
)

REMEDIES = {  # by the number of an error of the system about a file
    errno.EACCES: "; change its permissions, or give another path",
    errno.EPERM: "; change its permissions, or give another path",
    errno.EROFS: "; give a path that can be written",
    errno.ENOSPC: "; free some space, or give a path on another disk",
    errno.EDQUOT: "; free some space, or give a path on another disk",
}


def print_warning(message: str) -> None:
    print(message, file=sys.stderr)


def command(*words: object) -> str:
    """Returns a command of this package to copy into a shell."""
    return shlex.join(("rl-training", *map(str, words)))


def option_name(key: str) -> str:
    """Returns the option of a key: `--gpu-memory` for `gpu_memory`."""
    return f"--{key.replace('_', '-')}"


def many(number: int, noun: str) -> str:
    """Returns a number with its noun: `1 step`, `2,000 steps`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def seeds_text(seeds: Sequence[int]) -> str:
    """Returns `seed 7`, or `seeds 0-4, 7`."""
    return f"seed{'s' if len(seeds) > 1 else ''} {seed_ranges(seeds)}"


def seed_ranges(seeds: Sequence[int]) -> str:
    """Returns `0-4, 7` for the seeds 0, 1, 2, 3, 4 and 7."""
    parts: list[list[int]] = []
    for seed in sorted(seeds):
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 2 else ", ".join(map(str, part)) for part in parts)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean X?` if one of the names is close, else nothing."""
    close = close_name(name, known)
    return "" if close is None else f"; did you mean {close!r}?"


def close_name(name: str, known: Iterable[str]) -> str | None:
    close = get_close_matches(name.lower(), by_lower := {each.lower(): each for each in known}, 1)
    return by_lower[close[0]] if close else None


def first_few(values: Any) -> str:
    """Returns at most five values of a sequence: `3, 5, 8`, or `1, 2, 3, 4, 5, ...`."""
    return ", ".join(map(str, values[:5])) + (", ..." if len(values) > 5 else "")


def rows_text(rows: Any) -> str:
    """Returns `row 3`, or `rows 3, 5, 8`, with at most five numbers."""
    return f"row{'' if len(rows) == 1 else 's'} {first_few(rows)}"


def return_format(*values: float | None) -> str:
    """The format of returns that are shown together: one digit, or two significant ones if all are below 0.1."""
    largest = max((abs(value) for value in values if value is not None), default=0.0)
    return ".2g" if 0 < largest < 0.1 else ".1f"


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def describe_error(error: BaseException) -> str:
    """Returns the class and the message of an error, on one line unless the message has several."""
    try:
        message = str(error)
    except Exception:  # an error of user code may fail to print
        message = ""
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def describe_system_error(error: OSError) -> str:
    """Returns the reason and the remedy: `Permission denied; change its permissions, or give another path`."""
    return f"{error.strerror or error}{REMEDIES.get(error.errno or 0, '')}"


@contextmanager
def quiet_logger(name: str) -> Iterator[None]:
    """Hides the warnings of Python and of this logger, whose errors are still logged."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
