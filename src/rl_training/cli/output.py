"""Printed output: results go to stdout, everything else to stderr."""

import json
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

import typer

from rl_training.messages import command, duration, many, return_format

SENTENCE = 28  # characters from which a table cell may wrap
NARROW = 20  # characters below which a last column of sentences moves below its rows
GAP, INDENT = 3, "    "  # between two columns, and before cells below their row
NO_EDGE = 10_000  # width of output that is not a terminal


@contextmanager
def stdout_for_results() -> Iterator[None]:
    """Redirects everything that environments and libraries print, also in workers, to stderr."""
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
    """Replaces NaN and infinite floats, which JSON cannot represent, by None."""
    if isinstance(value, Mapping):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table in the width of the terminal. Long cells wrap between words; a word is never cut.

    Where a last column of sentences would be narrower than NARROW, its cells are printed below their rows.
    """
    widths = _widths(list(zip(columns, *rows, strict=True)))
    for line in _table_lines(columns, widths):
        typer.secho(line, bold=True)
    typer.echo("─" * _total(widths))
    for row in rows:
        typer.echo("\n".join(_table_lines(row, widths)))


def _widths(columns: Sequence[Sequence[str]]) -> list[int]:
    """Widths of the columns that stand side by side."""
    from rich.cells import cell_len

    last, widths = columns[-1], column_widths(columns, line_width() - GAP * (len(columns) - 1))
    width, word = (max(map(cell_len, texts)) for texts in (last, " ".join(last).split() or [""]))
    is_narrow = _total(widths) > line_width() or widths[-1] < min(width, NARROW)
    is_below = len(columns) > 1 and width >= SENTENCE and word < width and is_narrow
    return _widths(columns[:-1]) if is_below else widths


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _table_lines(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """The lines of one row; cells without a width come below it, indented."""
    from rich.cells import set_cell_size

    beside = [wrapped(cell, width) for cell, width in zip(row, widths, strict=False)]
    for parts in zip_longest(*beside, fillvalue=""):
        yield (" " * GAP).join(map(set_cell_size, parts, widths)).rstrip()
    for cell in filter(None, row[len(widths) :]):
        yield from (INDENT + line for line in wrapped(cell, line_width() - len(INDENT)))


def wrapped(text: str, width: int) -> list[str]:
    """Cuts a text between words into lines of at most this width; a longer word has a line of its own."""
    from rich.cells import cell_len  # 2 for wide characters, such as Chinese ones

    first, *words = re.split(r"\s", text.strip())
    lines = [first]
    for word in words:
        if cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += f" {word}"
        elif word:  # two spaces hold an empty one
            lines.append(word)
    return lines


def column_widths(columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """Widths of columns that fit into `room`, or exceed it if nothing more can shrink.

    The column in which the fewest cells get another line shrinks first, the widest of several such columns. None is
    narrower than its longest word, and columns of short cells do not shrink.
    """
    from rich.cells import cell_len

    lengths = [[cell_len(cell) for cell in cells] for cells in columns]
    widths = [max(each) for each in lengths]
    words = [max(cell_len(word) for cell in cells for word in cell.split() or [""]) for cells in columns]
    least = [width if width < SENTENCE else word for width, word in zip(widths, words, strict=True)]
    while sum(widths) > room and (wide := [n for n, width in enumerate(widths) if width > least[n]]):
        filled = {n: sum(length >= widths[n] for length in lengths[n]) for n in wide}
        widths[min(wide, key=lambda n: (filled[n], -widths[n]))] -= 1
    return widths


def print_wrapped(start: str, text: str, *, width: int | None = None) -> None:
    """Wraps text after `start` between words; later lines are indented by the length of `start`."""
    room = max(1, (line_width() if width is None else width) - len(start))
    first, *more = wrapped(text, room)
    typer.echo("\n".join([(start + first).rstrip(), *(" " * len(start) + line for line in more)]))


def line_width() -> int:
    """Width of the terminal, or $COLUMNS."""
    return shutil.get_terminal_size((NO_EDGE, 0)).columns


def print_facts(facts: Mapping[str, str | None]) -> None:
    """Prints one fact a line, its name first. Facts that are None are left out."""
    column = max(12, *(len(name) + 2 for name in facts))
    for name, fact in facts.items():
        if fact is not None:
            width = NO_EDGE if fact.startswith("rl-training ") else None  # keeps commands in one line, to be copied
            print_wrapped(f"{name:<{column}}", fact, width=width)


def print_report(report: Mapping[str, Any], curve: Path | None, *, data: str | None) -> None:
    """Prints the report of `train --json`. An agent without an environment is evaluated with `data`."""
    trained = f"{many(report['steps'], 'step')}, {many(report['updates'], 'update')}"
    done = f"{trained} ({report['updates_per_second']:,.0f}/s)"
    evaluation, runs = report["evaluation"], report.get("runs", ())
    if "runs" in report:
        print_table(("seed", "status", "return", "run"), [_row(run) for run in runs])
    print_facts({
        report["status"]: f"{done} in {duration(report['seconds'])}", "because": report["stop_reason"],
        "evaluation": None if evaluation is None else score(evaluation, len(runs)), "run": report["run_dir"],
        "curve": None if curve is None else str(curve), "checkpoint": report["checkpoint"],
        "best": report["best_checkpoint"], "next": _next(report, data),
    })  # fmt: skip


def print_profile(seconds: Mapping[str, float]) -> None:
    whole = max(sum(seconds.values()), 1e-9)
    rows = [(part, f"{each:.1f} s", f"{100 * each / whole:.0f}%") for part, each in seconds.items()]
    print_table(("part", "time", "share"), [*rows, ("total", f"{whole:.1f} s", "100%")])


def _row(run: Mapping[str, Any]) -> tuple[str, str, str, str]:
    evaluation = run["evaluation"]
    return str(run["seed"]), run["status"], "" if evaluation is None else score(evaluation), run["run_dir"]


def _next(report: Mapping[str, Any], data: str | None) -> str:
    if report["status"] == "stopped":
        return "the same command continues" if "runs" in report else command("resume", report["run_dir"])
    run_dir = report["runs"][0]["run_dir"] if "runs" in report else report["run_dir"]
    return command("evaluate", run_dir) + ("" if data is None else f" --ope {data}")


def score(evaluation: Mapping[str, Any], seeds: int = 0) -> str:
    """Mean ± standard deviation of the returns, and the D4RL normalized score and the success rate if there are any."""
    episodes = many(evaluation["episodes"], "episode") + (f" of {many(seeds, 'seed')}" if seeds else "")
    digits = return_format(evaluation["return_mean"], evaluation["return_std"])
    # With several seeds, the standard deviation is that over seeds.
    spread = "" if seeds == 1 else f" ± {evaluation['return_std']:{digits}}"
    text = f"{evaluation['return_mean']:{digits}}{spread} over {episodes}"
    if (normalized := evaluation.get("normalized_score")) is not None:
        text += f", normalized score {normalized:.1f}"
    rate = evaluation.get("success_rate")
    return text if rate is None else f"{text}, success rate {rate:.0%}"


@contextmanager
def progress(noun: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yields a function that shows how many are done: a bar on a terminal, else a line every ten seconds."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%")
    start = shown = time.monotonic()
    with Progress(
        *columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=total)

        def show(done: int) -> None:
            nonlocal shown
            now = time.monotonic()
            if now - shown < (0.2 if console.is_terminal else 10):
                return
            shown, rate = now, done / (now - start)
            line = f"{noun} {done:,} of {total:,}  {rate:,.0f}/s"
            bar.update(task, completed=done, description=line)
            if not console.is_terminal:
                typer.echo(f"{line}  about {duration(round((total - done) / rate))} left", err=True)

        yield show
