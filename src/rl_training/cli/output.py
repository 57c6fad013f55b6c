"""What a person or a script gets to read: results on stdout, all else on stderr."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

GAP, INDENT = 3, 4  # between the columns of a table, and before those that go beneath
SENTENCE = 30  # what one needs of a line: in less it becomes a tower
FILE = 10_000  # the width of what has no right edge


@contextmanager
def stdout_for_results() -> Iterator[None]:
    """Inside, whatever environments and libraries print, in workers too, goes to stderr."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def print_json(values: Mapping[str, Any]) -> None:
    typer.echo(json.dumps(without_nan(values), allow_nan=False))


def without_nan(value: Any) -> Any:
    """The same with null for every float that JSON has no word for."""
    if isinstance(value, Mapping):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns side by side; those that the line has no room for go beneath the others."""
    width = line_width()
    table = [columns, *rows]
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    # A sentence may wrap, if enough of it stays on a line; a word may not.
    least = [
        min(widest, max(SENTENCE, *(len(word) for cell in cells for word in cell.split() or [""])))
        for widest, cells in zip(widths, zip(*table, strict=True), strict=True)
    ]
    lines = list(side_by_side(widths, least, width))
    head, *body = ([text for line in lines for text in row_lines(row, widths, line, width)] for row in table)
    rule = "─" * max(len(text) for text in (*head, *(text for row in body for text in row)))
    typer.echo("\n".join([*(typer.style(text, bold=True) for text in head), rule]))
    for text in (text for row in body for text in row):
        typer.echo(text)


def side_by_side(widths: Sequence[int], least: Sequence[int], width: int) -> Iterator[range]:
    """Which columns share a line: as many as have room, of which the last may have no more than the least."""
    start, used = 0, 0
    for number, (each, needed) in enumerate(zip(widths, least, strict=True)):
        if number > start and used + needed > width:
            yield range(start, number)
            start, used = number, INDENT
        used += each + GAP
    yield range(start, len(widths))


def row_lines(cells: Sequence[str], widths: Sequence[int], columns: range, width: int) -> list[str]:
    """Some columns of a row, the last of them wrapped; what goes beneath is set in, and left out where it is empty."""
    *others, last = columns
    start = " " * (INDENT if columns.start else 0) + "".join(f"{cells[n]:<{widths[n] + GAP}}" for n in others)
    return [] if columns.start and not "".join(cells[n] for n in columns) else wrapped(start, cells[last], width)


def wrapped(start: str, text: str, width: int) -> list[str]:
    """The text after `start`, in lines that end between words and begin where it does."""
    room = max(1, width - len(start))
    first, *more = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
    return [(start + first).rstrip(), *(" " * len(start) + line for line in more)]


def print_wrapped(start: str, text: str, *, width: int | None = None) -> None:
    typer.echo("\n".join(wrapped(start, text, line_width() if width is None else width)))


def line_width() -> int:
    """Of the terminal, or as $COLUMNS says."""
    return shutil.get_terminal_size((FILE, 0)).columns


def print_facts(facts: Mapping[str, str | None]) -> None:
    """Prints one fact a line, its name first. Facts that are None are left out."""
    column = max(12, *(len(name) + 2 for name in facts))
    for name, fact in facts.items():
        if fact is not None:
            width = FILE if fact.startswith("rl-training ") else None  # a command is there to be copied
            print_wrapped(f"{name:<{column}}", fact, width=width)


def print_report(report: Mapping[str, Any], curve: Path | None, *, data: str | None = None) -> None:
    """How a training ended, in the form `train --json` has, where everything lies and what to do next.

    `data` is what there is to judge an agent by that has no environment.
    """
    work = f"{report['steps']:,} steps, {report['updates']:,} updates ({report['updates_per_second']:,.0f}/s)"
    evaluation, of_seeds = report["evaluation"], ""
    if "runs" in report:
        print_table(("seed", "status", "return", "run"), [_row(run) for run in report["runs"]])
        of_seeds = f" of {len(report['runs'])} seeds"
    print_facts(
        {
            report["status"]: f"{work} in {duration(report['seconds'])}",
            "because": report["stop_reason"],
            "evaluation": None if evaluation is None else score(evaluation) + of_seeds,
            "run": report["run_dir"],
            "curve": None if curve is None else str(curve),
            "checkpoint": report["checkpoint"],
            "best": report["best_checkpoint"],
            "next": _next(report, data),
        }
    )


def print_profile(seconds: Mapping[str, float]) -> None:
    """Where the time of a training went, by parts."""
    whole = max(sum(seconds.values()), 1e-9)
    rows = [(part, f"{each:.1f} s", f"{100 * each / whole:.0f}%") for part, each in seconds.items()]
    print_table(("part", "time", "share"), rows)


def _row(run: Mapping[str, Any]) -> tuple[str, str, str, str]:
    evaluation = run["evaluation"]
    return str(run["seed"]), run["status"], "" if evaluation is None else score(evaluation), run["run_dir"]


def _next(report: Mapping[str, Any], data: str | None) -> str:
    if report["status"] == "stopped":
        return "the same command again goes on" if "runs" in report else f"rl-training resume {report['run_dir']}"
    run_dir = report["runs"][0]["run_dir"] if "runs" in report else report["run_dir"]
    if data is not None:
        return f"rl-training evaluate {run_dir} --ope {data}"
    return f"rl-training evaluate {run_dir}"


def score(evaluation: Mapping[str, Any]) -> str:
    """Mean ± deviation of the returns, and D4RL's score where there is one."""
    episodes = many(evaluation["episodes"], "episode")
    text = f"{evaluation['return_mean']:.1f} ± {evaluation['return_std']:.1f} over {episodes}"
    normalized = evaluation.get("normalized_score")
    return text if normalized is None else f"{text}, normalized score {normalized:.1f}"


def many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@contextmanager
def progress(noun: str, total: int) -> Iterator[Callable[[int], None]]:
    """Gives a function to tell how many are done: a bar on a terminal, a line every ten seconds elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%")
    began = shown = time.monotonic()
    with Progress(
        *columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=total)

        def show(done: int) -> None:
            nonlocal shown
            now = time.monotonic()
            if now - shown < (0.2 if console.is_terminal else 10):
                return
            shown, rate = now, done / (now - began)
            line = f"{noun} {done:,} of {total:,}  {rate:,.0f}/s"
            bar.update(task, completed=done, description=line)
            if not console.is_terminal:
                typer.echo(f"{line}  about {duration((total - done) / rate)} left", err=True)

        yield show
