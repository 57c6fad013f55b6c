"""`bench` trains many algorithms and environments."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rl_training.cli.data import ActionRange, Allow, Columns, read_options
from rl_training.cli.executors import takes_executor
from rl_training.cli.options import DATA, DATASETS, LIST, Json, number
from rl_training.cli.output import print_facts, print_json, print_table, print_wrapped
from rl_training.cli.tables import takes_table_options
from rl_training.experiment.executors.base import ExecutorOptions
from rl_training.messages import OPE_CAUTION, command, duration, many, return_format

if TYPE_CHECKING:
    from rich.table import Table

    from rl_training.experiment.bench.cell import CellRun
    from rl_training.experiment.bench.runner import Bench, Watch

ESTIMATES = "estimate [95%] of each seed"
Plan = Annotated[
    Path | None,
    typer.Argument(
        metavar="PLAN.yaml", help="A plan: the options below as YAML keys. Options on the command line override it."
    ),
]
Algos = Annotated[str | None, typer.Option(metavar="A,B", help="Algorithms with default options."), LIST]
Configs = Annotated[
    str | None, typer.Option(metavar="A,B", help="Packaged configs (iql/pendulum) or .yaml files."), LIST
]
Envs = Annotated[str | None, typer.Option(metavar="A,B", help="Environment ids (default: those of the configs)."), LIST]
Datasets = Annotated[
    str | None, typer.Option(metavar="F,G", help="Dataset files; each one is a separate task."), DATASETS
]
Seeds = Annotated[str | None, typer.Option(metavar="0-4", help="Random seeds of every cell.", show_default="0-4"), LIST]
Steps = Annotated[int | None, number("Steps of every run (offline: updates).")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a config key or an algorithm option in every cell."),
]
Episodes = Annotated[int | None, number("Episodes per score.", show_default="50")]
Score = Annotated[
    Literal["episodes", "ope"] | None,
    typer.Option(help="Score by evaluation episodes, or by off-policy estimates from data.", show_default="episodes"),
]
Test = Annotated[
    str | None, typer.Option(metavar="DATASET", help="Test data of --score ope: episodes that no cell trains on."), DATA
]
Updates = Annotated[int | None, number("Updates of each estimate.", show_default="10,000")]
Gamma = Annotated[float | None, typer.Option(metavar="G", help="Discount of the estimates.", show_default="0.99")]
Jobs = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Cells run in parallel.", show_default="number of cores")
]
OneCell = Annotated[
    str | None, typer.Option("--cell", metavar="NAME", help="Run only this cell, of the bench in DIR if there is one.")
]
Output = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Output directory; alone, it continues its bench.",
        show_default="runs/bench, or runs/PLAN",
    ),
]


@takes_executor
@takes_table_options
def bench(
    plan: Plan = None, algos: Algos = None, configs: Configs = None, envs: Envs = None, datasets: Datasets = None,
    columns: Columns = None, action_range: ActionRange = None, allow: Allow = None, seeds: Seeds = None,
    steps: Steps = None, overrides: Overrides = None, episodes: Episodes = None, score: Score = None,
    test: Test = None, updates: Updates = None, gamma: Gamma = None, jobs: Jobs = None, output: Output = None,
    one_cell: OneCell = None, as_json: Json = False, *, executor: ExecutorOptions, table: dict[str, Any],
) -> None:  # fmt: skip
    """Train algorithms on environments or datasets with several seeds. Repeat the command to continue. With --score ope
    no environment is needed: the runs are scored by off-policy estimates from test data."""
    from rl_training.experiment.bench.plan import PLAN, parse_plan, read_plan
    from rl_training.experiment.bench.runner import Bench

    given = {"algos": algos, "configs": configs, "envs": envs, "datasets": datasets, "seeds": seeds, "steps": steps,
             "episodes": episodes, "score": score, "test": test, "updates": updates, "gamma": gamma}  # fmt: skip
    values = read_plan_file(plan) | {key: value for key, value in given.items() if value is not None}
    if episodes is not None and values.get("score") == "ope":
        raise ValueError("--score ope runs no episodes: remove --episodes")
    reading = {**read_options(columns, action_range, allow), "table": table}
    changes = [f"{key}={json.dumps(value)}" for key, value in reading.items() if value] + (overrides or [])
    continued = output is not None and (output / PLAN).is_file()
    output = output or Path("runs") / ("bench" if plan is None else plan.stem)
    stored = not values and not changes and (continued or one_cell is not None)
    work = Bench(read_plan(output) if stored else parse_plan(with_seeds_and_overrides(values, changes)), output)
    with watching(work) as watch:
        run(work, replace(executor, jobs=jobs), watch, one_cell=one_cell)
    print_result(work, as_json=as_json)
    if work.signal is not None or work.status in ("failed", "stopped"):
        raise typer.Exit(1 if work.signal is None else 128 + work.signal)


def run(work: Bench, options: ExecutorOptions, watch: Watch, *, one_cell: str | None) -> None:
    from rl_training.experiment.executors.opening import for_devices, open_executor

    if one_cell is not None and options.name != "local":
        raise ValueError(f"--cell runs one cell on this machine, so leave out --executor {options.name}, or --cell")
    with closing(open_executor(for_devices(options, {cell.config.device for cell in work.cells}))) as executor:
        if one_cell is None:
            work.run(executor=executor, watch=watch)
        else:
            work.run_cell(one_cell, executor=executor, watch=watch)


def read_plan_file(path: Path | None) -> dict[str, Any]:
    from rl_training.experiment.config.train_config import load_config

    if path is not None and path.suffix not in (".yaml", ".yml"):
        raise ValueError(
            f"a plan must be a .yaml file, got {path}; lists have commas between their values, such as --algos bc,iql, "
            "and --configs takes configs"
        )
    return {} if path is None else load_config(str(path))


def with_seeds_and_overrides(values: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The values with seeds such as 0-4 as a list, and the overrides merged into `set`."""
    from rl_training.cli.seeds import parse_seeds
    from rl_training.experiment.config.messages import key_and_value
    from rl_training.experiment.config.yaml_text import read_yaml

    changed = dict(values)
    if isinstance(values.get("seeds"), str):
        changed["seeds"] = parse_seeds(values["seeds"])
    if overrides:
        pairs = [key_and_value(override, what="--set") for override in overrides]
        changed["set"] = {**(values.get("set") or {}), **{key: read_yaml(text) for key, text in pairs}}
    return changed


@contextmanager
def watching(work: Bench) -> Iterator[Watch]:
    """Yields a function that shows the cells on stderr: a live table on a terminal, otherwise changes line by line."""
    if not sys.stderr.isatty():
        yield StateLines()
        return
    from rich.console import Console
    from rich.live import Live

    from rl_training.experiment.bench.cell import seconds_left

    began, before = time.monotonic(), overall(work.cells)
    with Live(console=Console(stderr=True), auto_refresh=False) as live:

        def show(cells: Sequence[CellRun]) -> None:
            left = seconds_left(time.monotonic() - began, before, overall(cells))
            live.update(table(cells, left), refresh=True)

        yield show


class StateLines:
    """Prints a line when the state of a cell changes."""

    def __init__(self) -> None:
        self.printed: dict[str, str] = {}

    def __call__(self, cells: Sequence[CellRun]) -> None:
        for cell in cells:
            if self.printed.get(cell.cell.name, "waiting") != cell.state:
                self.printed[cell.cell.name] = cell.state
                typer.echo(f"{cell.cell.name}: {cell.state}{'' if cell.error is None else f': {cell.error}'}", err=True)


def overall(cells: Sequence[CellRun]) -> float:
    """Mean progress of the cells, between 0 and 1."""
    return sum(cell.progress() for cell in cells) / len(cells)


def table(cells: Sequence[CellRun], seconds_left: float | None) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    done = f"{sum(cell.state == 'done' for cell in cells)} of {len(cells)} cells done"
    title = done if seconds_left is None else f"{done}, about {duration(seconds_left)} left"
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, title=title, title_justify="left")
    for column in ("cell", "state", "progress", "left", ""):
        grid.add_column(column, justify="right" if column in ("progress", "left") else "left")
    for cell in cells:
        left = cell.seconds_left()
        words = (cell.cell.name, cell.state, f"{cell.progress():.0%}", "" if left is None else duration(left))
        grid.add_row(*(Text(word) for word in (*words, cell.error or "")))
    return grid


def print_result(work: Bench, *, as_json: bool) -> None:
    cells = [_cell_json(cell) for cell in work.cells]
    if as_json:
        print_json({"bench": str(work.directory), "status": work.status, "cells": cells})
        return
    header, text = ("score of each seed", played) if work.plan.score == "episodes" else (ESTIMATES, estimated)
    rows = [(cell["cell"], cell["state"], text(cell), cell["error"] or "") for cell in cells]
    print_table(("cell", "state", header, "error"), rows)
    if work.plan.score == "ope" and any(cell["estimates"] for cell in cells):
        print_wrapped("caution     ", f"no episodes were played: {OPE_CAUTION}")
    print_facts({"bench": str(work.directory), "next": _next(work)})


def played(cell: dict[str, Any]) -> str:
    digits = return_format(*cell["scores"])
    return " ".join(f"{score:,{digits}}" for score in cell["scores"])


def estimated(cell: dict[str, Any]) -> str:
    """The estimate and interval of each seed, and the number of its warnings."""
    texts = []
    for each in cell["estimates"]:
        low, high = each["interval"]
        warnings = f" ({many(len(each['warnings']), 'warning')})" if each["warnings"] else ""
        texts.append(f"{each['estimate']:.5g} [{low:.5g}, {high:.5g}]{warnings}")
    return ", ".join(texts)


def _next(work: Bench) -> str:
    if work.status == "failed" and all(cell.busy for cell in work.cells if cell.state == "failed"):
        return "repeat the command once the other process has ended"
    if work.status == "failed":
        return "correct the error (log.txt in the folder of the cell has the details), then repeat the command"
    return command("compare", work.directory) if work.status == "done" else "repeat the command to continue"


def _cell_json(cell: CellRun) -> dict[str, Any]:
    from rl_training.experiment.bench.scores import is_estimate, value_of

    scores = [] if cell.result is None else [run["score"] for run in cell.result["runs"]]
    facts = {
        "cell": cell.cell.name, "algo": cell.cell.learner, "env": cell.config.env_id, "dataset": cell.cell.dataset,
        "state": cell.state, "error": cell.error, "seeds": cell.plan.seeds, "directory": str(cell.folder),
        "scores": [value_of(score) for score in scores],
    }  # fmt: skip
    if cell.plan.score == "episodes":
        return facts
    named = ("estimate", "interval", "warnings", "estimates")
    estimates = [{name: score[name] for name in named} for score in scores if is_estimate(score)]
    return {**facts, "score": cell.plan.score, "test": cell.plan.test, "estimates": estimates}
