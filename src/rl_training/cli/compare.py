"""`compare` summarises benchmarks and runs; `runs ls` lists runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training.cli.data import require_plot_path
from rl_training.cli.options import Json, show_help
from rl_training.cli.output import print_json, print_table, print_wrapped
from rl_training.files import require_directory
from rl_training.messages import OPE_CAUTION, duration, return_format

if TYPE_CHECKING:
    from rl_training.reporting.comparison import Comparison, Entry
    from rl_training.reporting.stored_runs import StoredRun

app = typer.Typer(help="List runs.", rich_markup_mode=None)
app.callback(invoke_without_command=True)(show_help)
Paths = Annotated[
    list[str],
    typer.Argument(metavar="PATH...", help="Bench or run directories, folders of runs, or patterns in quotes."),
]
Csv = Annotated[Path | None, typer.Option(metavar="FILE", help="Write one row per run to a CSV file.")]
Markdown = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the tables to a Markdown file.")]
By = Annotated[
    list[str] | None,
    typer.Option(
        "--by",
        metavar="KEY",
        help="Group runs by this config key or algorithm option only (default: all that differ); repeatable.",
    ),
]
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Plot learning curves (.png, .pdf or .svg).")]
Profiles = Annotated[Path | None, typer.Option(metavar="FILE", help="Plot performance profiles.")]
Improvement = Annotated[Path | None, typer.Option(metavar="FILE", help="Plot probabilities of improvement.")]


def compare(
    paths: Paths, by: By = None, as_json: Json = False, csv: Csv = None, markdown: Markdown = None, plot: Plot = None,
    profiles: Profiles = None, improvement: Improvement = None,
) -> None:  # fmt: skip
    """Summarise benchmarks and runs: scores with intervals, probabilities of improvement, and the seeds needed. Runs
    are grouped by algorithm, environment and the options in which they differ."""
    from rl_training.reporting import comparison

    for table in filter(None, (csv, markdown)):
        require_directory(table)
    for option, picture in (("--plot", plot), ("--profiles", profiles), ("--improvement", improvement)):
        if picture is not None:
            require_plot_path(picture, option)
    found = comparison.compare(*paths, by=by or ())
    unscored = "they have not finished or were never evaluated"
    for words, names in (("they are not done", found.missing), (unscored, found.left_out)):
        if names:
            typer.echo(f"left out because {words}: {', '.join(names)}", err=True)
    for note in found.notes:
        typer.echo(f"note: {note}", err=True)
    if csv is not None:
        comparison.save_csv(found, csv)
    if markdown is not None:
        markdown.write_text(comparison.markdown(found), encoding="utf-8")
    if as_json:
        print_json({"bench": paths[0] if len(paths) == 1 else paths, **found.to_json()})
    else:
        print_comparison(found)
    draw(found, plot, profiles, improvement)  # last: a picture may be impossible


def draw(found: Comparison, plot: Path | None, profiles: Path | None, improvement: Path | None) -> None:
    from rl_training.reporting.comparison import learning_curves
    from rl_training.reporting.comparison_plots import save_improvements, save_profiles
    from rl_training.reporting.plots import save_comparison

    if plot is not None:
        save_comparison(learning_curves(found), plot)
    if profiles is not None:
        save_profiles(found, profiles)
    if improvement is not None:
        save_improvements(found, improvement)


def print_comparison(found: Comparison) -> None:
    from rl_training.reporting import comparison
    from rl_training.reporting.tasks import data_names, name_of

    names = data_names(found.results)
    for group in found.groups:
        task = name_of(group.cell, names)
        print_wrapped("", f"{task}  {group.describe()}")
    typer.echo()
    print_table(*comparison.score_table(found))
    pairs = comparison.pair_table(found)
    if pairs.rows:
        typer.echo()
        print_table(*pairs)
    if comparison.SEEDS_NEEDED in pairs.columns:
        method = "normal approximation from these runs; 5% significance, 80% power, two-sided"
        print_wrapped(f"{comparison.SEEDS_NEEDED}: ", method)
    for line in comparison.behaviour_lines(found):
        print_wrapped("behaviour: ", line)
    print_warnings([entry for task in found.tasks for entry in task.entries if entry.warnings is not None])


def print_warnings(estimated: Sequence[Entry]) -> None:
    """Prints the warnings of off-policy estimates, each once, and their caution."""
    for text in dict.fromkeys(text for entry in estimated for text in entry.warnings or ()):
        named = dict.fromkeys(entry.algo for entry in estimated if text in (entry.warnings or ()))
        print_wrapped("warning: ", f"{', '.join(named)}: {text}")
    if estimated:
        print_wrapped("caution: ", OPE_CAUTION)


@app.command()
def ls(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to search.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List the runs below a folder: algorithm, environment, seed, status, step, last and best return, age."""
    from rl_training.reporting.stored_runs import read_run, run_directories

    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder")
    found, unreadable = [], []
    for path in run_directories(folder):
        try:
            found.append(read_run(path))
        except (ValueError, OSError) as error:
            unreadable.append(str(error))
    for message in unreadable:
        typer.echo(f"left out: {message}", err=True)
    described = [describe(run) for run in found]
    if as_json:
        print_json({"folder": str(folder), "runs": described})
        return
    if not described:
        typer.echo(f"no runs below {folder}")
        return
    columns = ("run", "algorithm", "environment", "seed", "status", "step", "last return", "best return", "age")
    print_table(columns, [row(each, folder) for each in described])


def describe(run: StoredRun) -> dict[str, Any]:
    """Returns the facts of one run for `runs ls --json`."""
    returns = [evaluation["return_mean"] for evaluation in run.evaluations]
    training = [row["episode_return"] for row in run.rows if row.get("episode_return") is not None]
    newest = run.path / "metrics.jsonl"
    changed = (newest if newest.exists() else run.path / "config.yaml").stat().st_mtime
    return {
        "run_dir": str(run.path), "algo": run.algo, "env": run.env, "dataset": run.dataset, "seed": run.seed,
        "status": run.status, "step": run.step, "total_steps": run.total_steps,
        "last_return": returns[-1] if returns else training[-1] if training else None,
        "best_return": max(returns, default=None), "evaluated": bool(returns),
        "age_seconds": max(0.0, time.time() - changed),
    }  # fmt: skip


def row(run: dict[str, Any], folder: Path) -> tuple[str, ...]:
    from rl_training.reporting.stored_runs import progress_text

    digits, kind = return_format(run["last_return"], run["best_return"]), "" if run["evaluated"] else " (training)"
    last = "" if run["last_return"] is None else f"{run['last_return']:,{digits}}{kind}"
    best = "" if run["best_return"] is None else f"{run['best_return']:,{digits}}"
    task = run["env"] or run["dataset"] or ""
    step = progress_text(run["step"], run["total_steps"])
    path = Path(run["run_dir"])
    name = str(path.relative_to(folder)) if path != folder else str(path)
    return name, run["algo"], task, str(run["seed"]), run["status"], step, last, best, duration(run["age_seconds"])
