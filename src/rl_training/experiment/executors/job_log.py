"""Passes on the warnings in the logs of jobs."""

from collections.abc import Iterable
from pathlib import Path

from rl_training.experiment.result import finished_earlier
from rl_training.messages import print_warning

ERRORS = ("error: ", "Traceback (most recent call last)")
PROGRESS = {finished_earlier(1), finished_earlier(2)}


class JobLog:
    """Reads a log while a job writes it."""

    def __init__(self, file: Path, *, skip: bool = False) -> None:
        """With `skip`, lines that are there already are not read."""
        self._file = file
        self._position = file.stat().st_size if skip and file.exists() else 0
        self._ended = False

    def warnings(self) -> list[str]:
        """The new complete lines up to an error, without progress."""
        if self._ended or not self._file.exists() or self._file.stat().st_size <= self._position:
            return []
        with self._file.open("rb") as file:
            file.seek(self._position)
            new = file.read()
        lines, _, rest = new.rpartition(b"\n")
        self._position += len(new) - len(rest)
        found = []
        for line in lines.decode(errors="replace").splitlines():
            if line.startswith(ERRORS):
                self._ended = True
                break
            found += [line] if line.strip() and line not in PROGRESS else []
        return found


class WarnOnce:
    """Prints each distinct warning once, with the name of the first job that has it."""

    def __init__(self) -> None:
        self._printed: set[str] = set()

    def __call__(self, name: str, warnings: Iterable[str]) -> None:
        for warning in warnings:
            if warning not in self._printed:
                self._printed.add(warning)
                print_warning(f"{name}: {warning}")
