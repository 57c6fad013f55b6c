"""The input of a tracker: the run that it logs, and the numbers of a row."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

Row = dict[str, Any]
FLAT = "eval_"  # start of the keys that repeat figures of `evaluation` at the top level of its row


class Subject(NamedTuple):
    """The run to log, from step `start` on.

    `stored` is what the tracker saved for this run before, and `store` saves it for a resume.
    """

    path: Path
    start: int
    config: dict[str, Any]
    stored: Callable[[], dict[str, Any]]
    store: Callable[[dict[str, Any]], None]

    @property
    def group(self) -> str:
        """The name that all seeds of a setting share."""
        return f"{self.config['algo']}-{self.config.get('env_id') or 'data'}"


class Tracker(Protocol):
    def write(self, row: Row) -> None: ...
    def finish(self, status: str) -> None:
        """Ends the tracker; `status` is that of the run: finished, early_stop, stopped, running or failed."""


def numbers_of(row: Row) -> dict[str, float]:
    """Returns the numbers of a row and of its evaluation, each once, without its step and time."""
    numbers = {**row, **row.get("evaluation", {})}
    return {
        name: value
        for name, value in numbers.items()
        if isinstance(value, int | float) and name not in ("step", "time") and not name.startswith(FLAT)
    }
