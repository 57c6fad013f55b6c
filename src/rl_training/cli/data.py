"""`data`: look at transitions before they are learned from, convert them, record them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training.cli.options import Json
from rl_training.cli.output import (
    many,
    print_facts,
    print_json,
    print_table,
    print_wrapped,
    progress,
    stdout_for_results,
)

if TYPE_CHECKING:
    from rl_training.data.datasets.report import ColumnSummary, DatasetReport

app = typer.Typer(help="Check, show, convert or collect data to learn from.", rich_markup_mode=None)

Source = Annotated[
    str, typer.Argument(metavar="SRC", help="A file (.csv, .parquet, .npz, .hdf5), several of them, or Minari's.")
]
Columns = Annotated[
    list[str] | None,
    typer.Option(metavar="OURS=THEIRS", help="What the file calls a column: obs=x,y,z; note= leaves it out."),
]
ActionRange = Annotated[
    str | None,
    typer.Option(metavar="LOW,HIGH", help="Bounds of the actions: -2,2, or [-1,0],[1,5] for each dimension."),
]
Allow = Annotated[
    str | None,
    typer.Option(metavar="A,B", help="Faults to mend, not refuse: nan, out_of_range, no_episode_end, crossing."),
]
Destination = Annotated[
    Path, typer.Argument(metavar="DEST", help="A new file (.npz, .parquet), or a new directory for Minari's layout.")
]


@app.callback(invoke_without_command=True)
def data(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def check(
    src: Source,
    columns: Columns = None,
    action_range: ActionRange = None,
    allow: Allow = None,
    env: Annotated[
        str | None, typer.Option(metavar="ENV", help="The environment the data is from, for its bounds.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what a dataset holds and what is wrong with it, all at once. The exit code is 0 if it can be trained on."""
    with stdout_for_results():
        from rl_training.data.datasets.checks import inspect_source

        spec = None
        if env is not None:
            from rl_training.envs.spec import spec_of

            spec = spec_of(env, {})
        options = read_options(columns, action_range, allow)
        report = inspect_source(src, columns=options.pop("dataset_columns"), spec=spec, **options)
    if as_json:
        print_json({"source": src, **report.to_json()})
    else:
        print_dataset(src, report)
    if not report.trainable:
        raise typer.Exit(1)


@app.command()
def show(
    src: Source,
    out: Annotated[Path, typer.Option(metavar="FILE.png", help="The picture to write.")],
    columns: Columns = None,
) -> None:
    """Draw a dataset. Episode returns and lengths, rewards, actions and the ranges of observations."""
    require_plot_path(out, "--out")
    with stdout_for_results():
        from rl_training.data import read_columns
        from rl_training.reporting.data_plots import save_data_plot

        stored = read_columns(src, columns=read_options(columns, None, None)["dataset_columns"])
        save_data_plot(stored.columns, out, title=f"{src}: {len(stored.columns['obs']):,} transitions")
    typer.echo(str(out))


@app.command()
def convert(
    src: Source,
    dest: Destination,
    columns: Columns = None,
    action_range: ActionRange = None,
    allow: Allow = None,
) -> None:
    """Write a dataset in another format. What is read is checked as training checks it."""
    with stdout_for_results():
        from rl_training.data import load_transition_dataset, save_transition_dataset

        require_new(dest)
        options = read_options(columns, action_range, allow)
        dataset = load_transition_dataset(src, columns=options.pop("dataset_columns"), **options)
        save_transition_dataset(dataset, dest)
    typer.echo(f"{dest}: {len(dataset):,} transitions")


@app.command()
def collect(
    who: Annotated[str, typer.Argument(metavar="RUN|random", help="A run directory or checkpoint, or random actions.")],
    steps: Annotated[int, typer.Option(metavar="N", min=1, help="Transitions to record, at least.")],
    out: Annotated[Path, typer.Option(metavar="DEST", help="A new file (.npz, .parquet), or a directory (Minari).")],
    env: Annotated[
        str | None, typer.Option(metavar="ENV", help="Environment id.", show_default="the one the run was trained in")
    ] = None,
    epsilon: Annotated[
        float, typer.Option(metavar="E", min=0, max=1, help="Share of the run's actions that are random.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(metavar="S", min=0, help="The same seed records the same rows.")] = 0,
    stochastic: Annotated[bool, typer.Option("--stochastic", help="Draw the run's actions.")] = False,
) -> None:
    """Record transitions of a trained agent, or of random actions. They train as any other data does."""
    with stdout_for_results():
        from rl_training.data import save_transition_dataset
        from rl_training.experiment.collection import collect_dataset

        require_new(out)
        with progress("row", steps) as done:
            dataset, whole = collect_dataset(
                who, env_id=env, rows=steps, seed=seed, epsilon=epsilon, stochastic=stochastic, progress=done
            )
        save_transition_dataset(dataset, out)
    returns, cut = dataset.episode_returns()[whole], int((~whole).sum())
    spread = f"{returns.mean():.1f} on average, {returns.min():.1f} to {returns.max():.1f}" if len(returns) else None
    print_facts(
        {
            "data": f"{out}: {len(dataset):,} transitions, {many(len(returns), 'whole episode')}",
            "cut": f"{many(cut, 'more episode')} where the recording ends; marked truncated" if cut else None,
            "return": spread,
            "next": f"rl-training data check {out}",
        }
    )


def read_options(columns: list[str] | None, action_range: str | None, allow: str | None) -> dict[str, Any]:
    """The options as a config has them."""
    from rl_training.experiment.config.messages import key_and_value

    named = {}
    for text in columns or []:
        ours, theirs = key_and_value(text, what="--columns", form="OURS=THEIRS, such as obs=state")
        if "=" in theirs:
            raise ValueError(f"--columns names one column at a time, --columns obs=x --columns actions=u, got {text!r}")
        named[ours] = theirs.strip()
    return {
        "dataset_columns": named,
        "action_range": None if action_range is None else bounds_of(action_range),
        "allow": tuple(name.strip() for name in (allow or "").split(",") if name.strip()),
    }


def bounds_of(text: str) -> tuple[Any, ...]:
    """LOW,HIGH as numbers, or as lists of them."""
    from rl_training.experiment.config.yaml_text import read_yaml

    bounds = read_yaml(f"[{text}]")
    numbers = [number for bound in bounds for number in (bound if isinstance(bound, list) else [bound])]
    if len(bounds) != 2 or not all(type(number) in (int, float) for number in numbers):
        raise ValueError(f"--action-range must be LOW,HIGH, such as -2,2, got {text!r}")
    return tuple(bounds)


def require_new(path: Path) -> None:
    """Before the work is done, not after: the place must be free, and of a kind that can be written."""
    from rl_training.data.writers import writer_for

    writer_for(path)
    if path.exists():
        raise FileExistsError(f"{path} exists; name another file or remove it first")
    if path.suffix:  # a directory for Minari is made with those above it
        require_directory(path)


def require_directory(path: Path) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no directory {path.parent} to write {path.name} to")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory; name a file in it")


def require_plot_path(path: Path, option: str) -> None:
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise ValueError(f"{option} must end in .png, .pdf or .svg, got {path}")
    require_directory(path)


def print_dataset(source: str, report: DatasetReport) -> None:
    if report.columns:
        print_contents(source, report)
    for finding in report.findings:
        print_wrapped(f"{finding.severity}: ", finding.sentence)
    typer.echo("it can be trained on" if report.trainable else "it cannot be trained on as it is")


def print_contents(source: str, report: DatasetReport) -> None:
    usable = report.transitions > 0
    learned = (
        f"{report.transitions:,} transitions to learn from" if usable else "none can be used: see the errors below"
    )
    ended = f"{report.terminals:,} ended in a terminal state, {report.timeouts:,} by time-out or where the data ends"
    print_facts(
        {
            "data": source,
            "rows": f"{report.rows:,} in the file, {learned}",
            "episodes": f"{report.episodes:,}: {ended}" if usable else None,
        }
    )
    spreads = {"return": report.returns, "length": report.lengths, "reward": report.rewards}
    known = [(name, *(f"{value:.4g}" for value in spread)) for name, spread in spreads.items() if spread is not None]
    if known:
        print_table(("of", "lowest", "quarter", "median", "three quarters", "highest", "mean"), known)
    print_table(
        ("column", "in the file", "kind", "range"),
        [(name, column.stored_as or made(name, column), kind(column), ranges(column))
         for name, column in report.columns.items()],
    )  # fmt: skip


def made(name: str, column: ColumnSummary) -> str:
    """Flags are 0 where nothing tells of an end; next_obs are the obs that follow, 0 or not."""
    return "not there, so 0" if name != "next_obs" and not any(column.high) else "made from the others"


def kind(column: ColumnSummary) -> str:
    return column.dtype + ("" if not column.shape else f" x {'x'.join(map(str, column.shape))}")


def ranges(column: ColumnSummary) -> str:
    """The range of each number of a row; of many, of all together."""
    known = [(low, high) for low, high in zip(column.low, column.high, strict=True) if not math.isnan(low)]
    if not known:
        return "none is a number"
    if len(column.low) > 8:
        lows, highs = zip(*known, strict=True)
        return f"{min(lows):.3g} to {max(highs):.3g} over all {len(column.low)}"
    return ", ".join(
        "no number" if math.isnan(low) else f"{low:.3g} to {high:.3g}"
        for low, high in zip(column.low, column.high, strict=True)
    )
