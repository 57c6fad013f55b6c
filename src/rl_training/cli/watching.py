"""Shows cells or trials on stderr while they run: a live table on a terminal, otherwise a line for each change."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

import typer

from rl_training.messages import duration

if TYPE_CHECKING:
    from rich.table import Table


class Watched(Protocol):
    state: str


Item = TypeVar("Item", bound=Watched)


@contextmanager
def watching(
    items: Sequence[Item], *, line: Callable[[Item], str], progress: Callable[[Item], float],
    table: Callable[[Sequence[Item], str], Table], ended: Collection[Item] = (),
) -> Iterator[Callable[[Sequence[Item]], None]]:  # fmt: skip
    """Yields a function that shows the items. `table` takes them and the time left, such as `, about 5 min left`.

    Items that have `ended` before get no line.
    """
    if not sys.stderr.isatty():
        yield state_lines(line, ended)
        return
    from rich.console import Console
    from rich.live import Live

    from rl_training.experiment.bench.cell import seconds_left

    def overall(items: Sequence[Item]) -> float:
        return sum(map(progress, items)) / len(items)

    began, before = time.monotonic(), overall(items)
    with Live(console=Console(stderr=True), auto_refresh=False) as live:

        def show(items: Sequence[Item]) -> None:
            left = seconds_left(time.monotonic() - began, before, overall(items))
            live.update(table(items, "" if left is None else f", about {duration(left)} left"), refresh=True)

        yield show


def state_lines(line: Callable[[Item], str], ended: Collection[Item]) -> Callable[[Sequence[Item]], None]:
    """Returns a function that prints a line for each item whose state has changed since the last call."""
    states = {item: item.state for item in ended}

    def show(items: Sequence[Item]) -> None:
        for item in items:
            if states.get(item, "waiting") != item.state:
                states[item] = item.state
                typer.echo(line(item), err=True)

    return show


def live_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[str]) -> Table:
    """A table without frame; the columns in `right` are aligned there."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, title=title, title_justify="left")
    for column in columns:
        grid.add_column(column, justify="right" if column in right else "left")
    for row in rows:
        grid.add_row(*map(Text, row))
    return grid
