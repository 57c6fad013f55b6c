"""`data`: check, plot, convert and collect transition datasets."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training.cli import output
from rl_training.cli.options import LIST, Json, Once, Trust, number, show_help
from rl_training.cli.tables import takes_table_options
from rl_training.files import require_directory
from rl_training.messages import command, many

if TYPE_CHECKING:
    from rl_training.data.datasets.report import ColumnSummary, DatasetReport

app = typer.Typer(help="Check, split, plot, convert or collect datasets.", rich_markup_mode=None)
app.callback(invoke_without_command=True)(show_help)

Source = Annotated[
    str,
    typer.Argument(metavar="SRC", help="A file (.csv, .parquet, .npz, .hdf5), a glob of files, or a Minari dataset."),
]
Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SRC...", help="Files (.csv, .csv.gz, .parquet, .npz, .hdf5), a glob of files, or a Minari dataset."
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=COLUMN", help="Give columns of the file a name: obs=x,y,z; note= drops the column note."
    ),
]
ActionRange = Annotated[
    str | None,
    typer.Option(metavar="LOW,HIGH", help="Action bounds: -2,2, or [-1,0],[1,5] per dimension."),
    Once("for several dimensions as two lists, such as [-1,0],[1,5]"),
]
Allow = Annotated[
    str | None,
    typer.Option(metavar="A,B", help="Problems to repair: nan, out_of_range, no_episode_end, crossing."),
    LIST,
]
Destination = Annotated[
    Path, typer.Argument(metavar="DEST", help="A new file (.npz, .parquet), or a new Minari directory.")
]


@app.command()
@takes_table_options
def check(
    src: Sources,
    columns: Columns = None,
    action_range: ActionRange = None,
    allow: Allow = None,
    env: Annotated[str | None, typer.Option(metavar="ENV", help="Environment id, for the action bounds.")] = None,
    as_json: Json = False,
    *,
    table: dict[str, Any],
) -> None:
    """Summarise a dataset and list all errors and warnings. The exit code is 0 if it can be used for training."""
    with output.stdout_for_results():
        from rl_training.data.datasets.checks import inspect_source

        spec = None
        if env is not None:
            from rl_training.envs.creation.making import spec_of
            from rl_training.experiment.trust import env_modules
            from rl_training.modules import approve

            approve(env_modules([env], {}))  # typed by the user
            spec = spec_of(env, {})
        options = read_options(columns, action_range, allow)
        report = inspect_source(src, columns=options.pop("dataset_columns"), spec=spec, **options, **table)
    if as_json:
        output.print_json({"source": src[0] if len(src) == 1 else src, **report.to_json()})
    else:
        print_dataset(named(src), report)
    if not report.trainable:
        raise typer.Exit(1)


@app.command()
@takes_table_options
def show(
    src: Sources,
    out: Annotated[Path, typer.Option(metavar="FILE.png", help="The picture to write.")],
    columns: Columns = None,
    *,
    table: dict[str, Any],
) -> None:
    """Plot a dataset: episode returns and lengths, rewards, actions and the ranges of observations."""
    require_plot_path(out, "--out")
    with output.stdout_for_results():
        from rl_training.data import read_columns
        from rl_training.data.datasets.validation import require_rewards
        from rl_training.data.readers.options import table_options
        from rl_training.reporting.data_plots import save_data_plot

        given = read_options(columns, None, None)["dataset_columns"]
        stored = read_columns(src, columns=given, options=table_options(**table))
        require_rewards(stored.columns)
        title = f"{named(src)}: {many(len(stored.columns['obs']), 'transition')}"
        save_data_plot(stored.columns, out, title=title, labels=stored.labels)
    typer.echo(str(out))


@app.command()
@takes_table_options
def convert(
    src: Sources, dest: Destination, columns: Columns = None, action_range: ActionRange = None, allow: Allow = None,
    *, table: dict[str, Any],
) -> None:  # fmt: skip
    """Convert a dataset to another format. It is validated as for training."""
    with output.stdout_for_results():
        from rl_training.data import load_transition_dataset, save_transition_dataset

        require_new(dest)
        options = read_options(columns, action_range, allow)
        given = options.pop("dataset_columns")
        dataset = load_transition_dataset(src, columns=given, keep_durations=True, **options, **table)
        save_transition_dataset(dataset, dest)
    print_notes(dataset.notes)
    typer.echo(f"{dest}: {many(len(dataset), 'transition')}")


@app.command()
def collect(
    policy: Annotated[
        str, typer.Argument(metavar="RUN|random", help="A run directory or checkpoint, or `random` for random actions.")
    ],
    steps: Annotated[int, number("Minimum number of transitions to record.")],
    out: Annotated[Path, typer.Option(metavar="DEST", help="A new file (.npz, .parquet), or a new Minari directory.")],
    env: Annotated[
        str | None, typer.Option(metavar="ENV", help="Environment id.", show_default="the one the run was trained in")
    ] = None,
    epsilon: Annotated[float, typer.Option(metavar="E", min=0, max=1, help="Probability of a random action.")] = 0.0,
    seed: Annotated[int, typer.Option(metavar="S", min=0, help="Random seed.")] = 0,
    stochastic: Annotated[bool, typer.Option("--stochastic", help="Sample actions from the policy.")] = False,
    trust: Trust = None,
) -> None:
    """Record transitions of a trained agent or of random actions."""
    with output.stdout_for_results():
        from rl_training.data import save_transition_dataset
        from rl_training.experiment.collection import collect_dataset

        require_new(out)
        with output.progress("row", steps) as done:
            dataset, whole = collect_dataset(
                policy, env_id=env, rows=steps, seed=seed, epsilon=epsilon, stochastic=stochastic, progress=done,
                trust=trust or (),
            )  # fmt: skip
        save_transition_dataset(dataset, out)
    returns, unfinished = dataset.episode_returns()[whole], int((~whole).sum())
    summary = f"mean {returns.mean():.1f}, from {returns.min():.1f} to {returns.max():.1f}" if len(returns) else None
    output.print_facts({
        "data": f"{out}: {many(len(dataset), 'transition')}, {many(len(returns), 'complete episode')}",
        "truncated": f"{many(unfinished, 'unfinished episode')}, marked as truncated" if unfinished else None,
        "return": summary, "next": command("data", "check", out),
    })  # fmt: skip


def read_options(columns: list[str] | None, action_range: str | None, allow: str | None) -> dict[str, Any]:
    from rl_training.data.readers.names import one_option
    from rl_training.experiment.config.messages import key_and_value

    named: dict[str, str] = {}
    for text in columns or []:
        name, column = key_and_value(text, what="--columns", form="NAME=COLUMN, such as obs=state")
        if "=" in column:
            raise ValueError(f"repeat --columns for each name: --columns obs=x --columns actions=u, got {text!r}")
        if name in named:
            raise ValueError(f"--columns names {name} twice; {one_option(name, [named[name], column.strip()])}")
        named[name] = column.strip()
    return {
        "dataset_columns": named,
        "action_range": None if action_range is None else parse_bounds(action_range),
        "allow": tuple(name.strip() for name in (allow or "").split(",") if name.strip()),
    }


def parse_bounds(text: str) -> tuple[Any, ...]:
    """Parses LOW,HIGH, each a number or a list of numbers."""
    from rl_training.experiment.config.yaml_text import read_yaml

    bounds = read_yaml(f"[{text}]")
    numbers = [number for bound in bounds for number in (bound if isinstance(bound, list) else [bound])]
    if len(bounds) != 2 or not all(type(number) in (int, float) for number in numbers):
        raise ValueError(f"--action-range must be LOW,HIGH, such as -2,2, got {text!r}")
    return tuple(bounds)


def require_new(path: Path) -> None:
    """Raises an error before any work is done if `path` exists or cannot be written."""
    from rl_training.data.writers import writer_for

    writer_for(path)
    try:
        exists = path.exists()
    except OSError as error:  # such as a name that is too long
        raise ValueError(f"cannot write {path}: {error.strerror}") from None
    if exists:
        raise FileExistsError(f"{path} exists; name another file or remove it first")
    if path.suffix:  # Minari directories are created with their parents
        require_directory(path)


def require_plot_path(path: Path, option: str) -> None:
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise ValueError(f"{option} must end in .png, .pdf or .svg, got {path}")
    require_directory(path)


def print_dataset(source: str, report: DatasetReport) -> None:
    from rl_training.data.readers.rows import left_out_notes

    if report.columns:
        print_contents(source, report)
    print_notes([*report.notes, *left_out_notes(report.left_out)])
    for finding in report.findings:
        output.print_wrapped(f"{finding.severity}: ", finding.sentence)
    typer.echo("usable for training" if report.trainable else "not usable for training: fix the errors above")


def print_notes(notes: Iterable[str]) -> None:
    for note in notes:
        output.print_wrapped("note: ", note)


def named(sources: list[str]) -> str:
    return sources[0] if len(sources) == 1 else f"{sources[0]} and {len(sources) - 1} more"


def print_contents(source: str, report: DatasetReport) -> None:
    usable = report.transitions > 0
    transitions = many(report.transitions, "usable transition") if usable else "none usable: see the errors below"
    cuts = "a time limit, a row left out" if report.left_out else "a time limit"
    ends = f"{report.terminals:,} terminated, {report.timeouts:,} truncated by {cuts} or the end of the data"
    episodes = f"{report.episodes:,}: {ends}" if usable else None
    output.print_facts({"data": source, "rows": f"{report.rows:,} in the file, {transitions}", "episodes": episodes})
    if report.distributions:
        output.print_table(("", "min", "25 %", "median", "75 %", "max", "mean"), report.distributions)
    output.print_table(
        ("column", "in the file", "type", "range"),
        [(name, column.stored_as or origin(name, column), type_text(column), values_text(name, column, report))
         for name, column in report.columns.items()],
    )  # fmt: skip


def origin(name: str, column: ColumnSummary) -> str:
    return "missing, set to 0" if name != "next_obs" and not any(column.high) else "derived from other columns"


def type_text(column: ColumnSummary) -> str:
    return column.dtype + ("" if not column.shape else f" x {'x'.join(map(str, column.shape))}")


def values_text(name: str, column: ColumnSummary, report: DatasetReport) -> str:
    """The range in the units of the file; actions with names are numbered from 0."""
    if name in ("actions", "next_actions"):
        start = report.action_start
        starts = start if isinstance(start, tuple) else (start,) * len(column.low)
        low, high = (tuple(map(sum, zip(bound, starts, strict=True))) for bound in (column.low, column.high))
        column = column._replace(low=low, high=high)
    return range_text(column)


def range_text(column: ColumnSummary) -> str:
    """The range of each dimension; above 8 dimensions, one range for all."""
    ranges = list(zip(column.low, column.high, strict=True))
    known = [(low, high) for low, high in ranges if not math.isnan(low)]
    if not known:
        return "all NaN or infinite"
    if len(column.low) > 8:
        lows, highs = zip(*known, strict=True)
        return f"{min(lows):.3g} to {max(highs):.3g} over {len(column.low)} dimensions"
    return ", ".join("NaN" if math.isnan(low) else f"{low:.3g} to {high:.3g}" for low, high in ranges)
