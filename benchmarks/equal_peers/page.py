"""The comparison of updates with peers as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SECTION = """\
## Equal updates

This section checks our update rules against other implementations. Our class and the peer's own class start from the
same parameters and receive the same batches and random numbers. Each number is the largest absolute difference of any
parameter afterwards, including target networks and running statistics. *Change* is how far a parameter moved. In
float64, rounding is negligible, so a difference there is one of the mathematics. SB3 stores rollouts in float32, so PPO
has no float64 column.

"""
ORDER = "The order of the steps in one update, what was changed in the peer, and the reason for a difference:\n\n"
PRECISIONS = {"float32": "max_difference", "float64": "max_difference_float64"}


def section(result: dict[str, Any]) -> str:
    note = f"{result['note']}\n\n" if "note" in result else ""
    return f"{SECTION}{table(result['cases'])}\n\n{note}`{result['commands'][0]}`\n"


def table(rows: Sequence[dict[str, Any]]) -> str:
    return f"{differences(rows)}\n\n{ORDER}{orders(rows)}"


def differences(rows: Sequence[dict[str, Any]]) -> str:
    marks = [str(mark) for mark in rows[0]["updates"]] if rows else []
    columns = [(mark, name) for name in PRECISIONS for mark in marks]
    lines = [["what", "peer", *(f"{mark} updates, {name}" for mark, name in columns), "change"]]
    for row in rows:
        found = [(row[PRECISIONS[name]] or {}).get(mark) for mark, name in columns]
        cells = ["" if each is None else f"{each:.0e}" for each in found]
        lines.append([row["what"], row["peer"], *cells, f"{row['max_change'][marks[-1]]:.0e}"])
    return markdown(lines)


def orders(rows: Sequence[dict[str, Any]]) -> str:
    lines = [["what", "order of steps", "notes"]]
    for row in rows:
        notes = "; ".join(filter(None, (row["changed_in_peer"], row["reason"])))
        lines.append([row["what"], row["order_of_steps"], notes])
    return markdown(lines)


def markdown(lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], ["---"] * len(lines[0]), *lines[1:]])
