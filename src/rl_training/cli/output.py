"""What a person or a script gets to read: results on stdout, all else on stderr."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer


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
    """Columns side by side; the last one takes what is left of the line."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column != columns[-1])
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(width=None if sys.stdout.isatty() else 200).print(table)  # a file has no right edge


def print_facts(facts: Mapping[str, str | None]) -> None:
    """One fact a line, its name first; those that are None are left out."""
    for name, fact in facts.items():
        if fact is not None:
            typer.echo(f"{name:<12}{fact}")


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
    if report["evaluation"] is None:
        return f"rl-training predict {run_dir} --obs JSON"
    return f"rl-training evaluate {run_dir}"


def score(evaluation: Mapping[str, Any]) -> str:
    """Mean ± deviation of the returns, and D4RL's score where there is one."""
    episodes = "1 episode" if evaluation["episodes"] == 1 else f"{evaluation['episodes']} episodes"
    text = f"{evaluation['return_mean']:.1f} ± {evaluation['return_std']:.1f} over {episodes}"
    normalized = evaluation.get("normalized_score")
    return text if normalized is None else f"{text}, normalized score {normalized:.1f}"


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
