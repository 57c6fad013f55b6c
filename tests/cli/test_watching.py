"""What commands show on stderr while cells or trials run, without a terminal and on one."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from rich.table import Table

from rl_training.cli.watching import live_table, watching


@dataclass(eq=False)
class Item:
    name: str
    state: str = "waiting"


def line(item: Item) -> str:
    return f"{item.name}: {item.state}"


def progress(item: Item) -> float:
    return float(item.state == "done")


def table(items: object, left: str) -> Table:
    assert isinstance(items, list)
    return live_table(f"{len(items)} items{left}", ("name", "state"), [(each.name, each.state) for each in items],
                      right=("state",))  # fmt: skip


def test_each_change_of_a_state_is_one_line_and_earlier_ends_are_none(capsys):
    first, second, earlier = Item("first"), Item("second"), Item("earlier", "done")
    with watching([first, second, earlier], line=line, progress=progress, table=table, ended=[earlier]) as show:
        for state in ("waiting", "running", "running", "done"):
            first.state = state
            show([first, second, earlier])
    assert capsys.readouterr().err.splitlines() == ["first: running", "first: done"]


def test_a_terminal_shows_a_table(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    items = [Item("first"), Item("second")]
    with watching(items, line=line, progress=progress, table=table) as show:
        items[0].state = "done"
        show(items)
    shown = capsys.readouterr().err
    assert "2 items, about" in shown
    assert "first: done" not in shown
