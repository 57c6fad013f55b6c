"""`bench` trains many algorithms and environments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rl_training.cli.data import ActionRange, Allow, Columns, read_options
from rl_training.cli.executors import takes_executor
from rl_training.cli.options import DATA, DATASETS, LIST, Json, number
from rl_training.cli.output import print_facts, print_json, print_table, print_wrapped
from rl_training.cli.tables import takes_table_options
from rl_training.cli.watching import live_table, watching
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
    str | None,
    typer.Option("--cell", metavar="NAME", help="Run only this cell. If DIR holds a bench, its plan is used."),
]
Output = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Output directory. Given alone, its bench continues.",
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
    started = Bench(read_plan(output) if stored else parse_plan(with_seeds_and_overrides(values, changes)), output)
    with watching_cells(started) as watch:
        run(started, replace(executor, jobs=jobs), watch, one_cell=one_cell)
    print_result(started, as_json=as_json)
    if started.signal is not None or started.status in ("failed", "stopped"):
        raise typer.Exit(1 if started.signal is None else 128 + started.signal)


def run(bench: Bench, options: ExecutorOptions, watch: Watch, *, one_cell: str | None) -> None:
    from rl_training.experiment.executors.opening import for_devices, open_executor

    if one_cell is not None and options.name != "local":
        raise ValueError(f"--cell runs one cell on this machine, so leave out --executor {options.name}, or --cell")
    with closing(open_executor(for_devices(options, {cell.config.device for cell in bench.cells}))) as executor:
        if one_cell is None:
            bench.run(executor=executor, watch=watch)
        else:
            bench.run_cell(one_cell, executor=executor, watch=watch)


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


def watching_cells(bench: Bench) -> AbstractContextManager[Watch]:
    """Yields a function that shows the cells of a bench on stderr while they run."""
    from rl_training.experiment.bench.cell import CellRun

    return watching(bench.cells, line=line, progress=CellRun.progress, table=table)


def line(cell: CellRun) -> str:
    return f"{cell.cell.name}: {cell.state}{'' if cell.error is None else f': {cell.error}'}"


def table(cells: Sequence[CellRun], left: str) -> Table:
    title = f"{sum(cell.state == 'done' for cell in cells)} of {len(cells)} cells done{left}"
    columns = ("cell", "state", "progress", "left", "")
    return live_table(title, columns, [row(cell) for cell in cells], right=("progress", "left"))


def row(cell: CellRun) -> tuple[str, ...]:
    left = cell.seconds_left()
    shown_left = "" if left is None else duration(left)
    return cell.cell.name, cell.state, f"{cell.progress():.0%}", shown_left, cell.error or ""


def print_result(bench: Bench, *, as_json: bool) -> None:
    cells = [_cell_json(cell) for cell in bench.cells]
    if as_json:
        print_json({"bench": str(bench.directory), "status": bench.status, "cells": cells})
        return
    header, text = ("score of each seed", played) if bench.plan.score == "episodes" else (ESTIMATES, estimated)
    rows = [(cell["cell"], cell["state"], text(cell), cell["error"] or "") for cell in cells]
    print_table(("cell", "state", header, "error"), rows)
    if bench.plan.score == "ope" and any(cell["estimates"] for cell in cells):
        print_wrapped("caution     ", f"no episodes were played: {OPE_CAUTION}")
    print_facts({"bench": str(bench.directory), "next": _next(bench)})


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


def _next(bench: Bench) -> str:
    if bench.status == "failed" and all(cell.busy for cell in bench.cells if cell.state == "failed"):
        return "repeat the command once the other process has ended"
    if bench.status == "failed":
        return "correct the error (log.txt in the folder of the cell has the details), then repeat the command"
    return command("compare", bench.directory) if bench.status == "done" else "repeat the command to continue"


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
