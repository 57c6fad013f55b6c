"""`data split`: a training and a test file of the same data."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rl_training.cli import output
from rl_training.cli.data import ActionRange, Allow, Columns, Sources, named, print_notes, read_options
from rl_training.cli.options import Json
from rl_training.cli.tables import takes_table_options
from rl_training.files import fsync_directory, require_writable
from rl_training.messages import command, many

if TYPE_CHECKING:
    from rl_training.data import TransitionDataset

SIDES = ("train", "test")
Fraction = Annotated[
    float, typer.Option("--test", metavar="FRACTION", help="Fraction of the episodes or groups in the test file.")
]
Out = Annotated[Path, typer.Option(metavar="DIR", help="Directory for train.* and test.*; created if it is missing.")]
How = Annotated[
    Literal["episode", "time", "group"] | None,
    typer.Option(
        "--by",
        help="Test on random episodes, on the last ones, or on whole groups.",
        show_default="episode",
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Keep episodes with the same value of this column, such as a patient, together."
    ),
]
Time = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Order the episodes by this column (default: by their rows).")
]
Seed = Annotated[int, typer.Option(metavar="S", min=0, help="Random seed of the split.")]
Format = Annotated[
    Literal["parquet", "npz"] | None,
    typer.Option("--format", help="Format of the files.", show_default="npz for .npz files, otherwise parquet"),
]


@takes_table_options
def split(
    src: Sources, out: Out, test: Fraction = 0.2, by: How = None, group: Group = None, time: Time = None,
    seed: Seed = 0, columns: Columns = None, action_range: ActionRange = None, allow: Allow = None,
    form: Format = None, as_json: Json = False, *, table: dict[str, Any],
) -> None:  # fmt: skip
    """Split a dataset into a training and a test file. Episodes are never cut. The data are validated as for training,
    and the files keep all columns, the action bounds and the number of actions, so later commands need no options."""
    by = by or ("group" if group is not None else "time" if time is not None else "episode")
    column = chosen_column(by, group, time)
    files = new_files(out, f".{form or ('npz' if Path(src[0]).suffix == '.npz' else 'parquet')}")
    with output.stdout_for_results():
        from rl_training.data import load_transition_dataset

        options = read_options(columns, action_range, allow)
        given = options.pop("dataset_columns") | ({} if column is None else {column: column})
        ids = () if group is None else (group,)
        dataset = load_transition_dataset(src, columns=given, ids=ids, keep_durations=True, **options, **table)
        if by == "time" and column in (dataset.spec.categories or {}):
            raise ValueError(f"--time {column} must hold numbers or timestamps such as 2026-01-31T12:30:00, not text")
        parts = dataset.split(test, by=by, column=column, seed=seed)
        write(dict(zip(files, parts, strict=True)), out)
    facts = {side: facts_of(part, file) for side, part, file in zip(SIDES, parts, files, strict=True)}
    later = later_rows(*parts, column) if by == "time" and column is not None else ()
    notes = [*dataset.notes, *cut_episodes(facts), *later]
    if as_json:
        output.print_json({"source": named(src), "by": by, "column": column, "seed": seed, **facts, "notes": notes})
        return
    print_sides(facts, notes)


def chosen_column(by: str, group: str | None, time: str | None) -> str | None:
    """The column of the group or of the time; raises ValueError for options that do not fit together."""
    if by == "group" and group is None:
        raise ValueError("--by group needs --group COLUMN, the column whose values stay together")
    for option, given, needed in (("--group", group, "group"), ("--time", time, "time")):
        if given is not None and by != needed:
            raise ValueError(f"{option} {given} needs --by {needed}, got --by {by}")
    column = group if by == "group" else time
    from rl_training.data.readers.names import SPELLINGS

    if column in SPELLINGS["episodes"]:
        raise ValueError(f"--{by} {column}: this column marks the episodes, which stay whole; leave it out")
    return column


def new_files(directory: Path, suffix: str) -> list[Path]:
    """The files to write; raises before any work is done if one exists or cannot be written."""
    from rl_training.data.extras import import_parquet

    if directory.exists() and not directory.is_dir():
        raise NotADirectoryError(f"--out must be a directory, but {directory} is a file")
    if not directory.exists() and not directory.parent.is_dir():
        raise FileNotFoundError(f"cannot create {directory}: directory {directory.parent} does not exist")
    require_writable(directory if directory.exists() else directory.parent, directory)
    existing = [file for side in SIDES for file in sorted(directory.glob(f"{side}.*"))]
    if existing:
        raise FileExistsError(f"{existing[0]} exists; choose another --out or remove it first")
    if suffix == ".parquet":
        try:
            import_parquet()
        except ImportError as error:
            raise ImportError(f"{error}, or write .npz files with --format npz") from error
    return [directory / f"{side}{suffix}" for side in SIDES]


def write(parts: dict[Path, TransitionDataset], directory: Path) -> None:
    """Writes both files or none."""
    from rl_training.data import save_transition_dataset

    is_new = not directory.exists()
    directory.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory, prefix=".split-") as temporary:
        for file, part in parts.items():
            save_transition_dataset(part, Path(temporary) / file.name)
        for file in parts:
            os.replace(Path(temporary) / file.name, file)
    for changed in (directory, *([directory.parent] if is_new else [])):
        fsync_directory(changed)


def facts_of(part: TransitionDataset, file: Path) -> dict[str, Any]:
    """Counts and returns of whole episodes, as the split counts them, also of those that are in several pieces."""
    from rl_training.data.datasets.tensors import to_array
    from rl_training.data.datasets.trajectories import trajectory_returns

    returns = trajectory_returns(to_array(part.columns["rewards"]), to_array(part.first_rows))
    return {
        "path": str(file), "rows": len(part), "episodes": len(returns), "pieces": len(part.episode_offsets),
        "terminated": part.terminals, "return_mean": float(returns.mean()), "return_min": float(returns.min()),
        "return_max": float(returns.max()),
    }  # fmt: skip


def cut_episodes(facts: dict[str, dict[str, Any]]) -> list[str]:
    episodes, pieces = (sum(each[name] for each in facts.values()) for name in ("episodes", "pieces"))
    if episodes == pieces:
        return []
    return [
        f"{many(episodes, 'episode')} are in {pieces:,} pieces, because rows are left out or episodes go on after "
        "terminal rows; returns are those of whole episodes, without the rows left out"
    ]


def later_rows(train: TransitionDataset, test: TransitionDataset, column: str) -> list[str]:
    later = int((train.columns[column] > test.columns[column].min()).sum())
    if not later:
        return []
    rows = many(later, "training row")
    return [f"{rows} of {len(train):,} are later than the first test row, because episodes overlap in time"]


def print_sides(facts: dict[str, dict[str, Any]], notes: list[str]) -> None:
    rows = [
        (side, f"{each['rows']:,}", f"{each['episodes']:,}", f"{each['terminated']:,}", f"{each['return_mean']:.5g}",
         f"{each['return_min']:.5g} to {each['return_max']:.5g}", each["path"])
        for side, each in facts.items()
    ]  # fmt: skip
    output.print_table(("", "rows", "episodes", "terminated", "mean return", "returns", "file"), rows)
    print_notes(notes)
    output.print_facts({"next": command("train", "iql", "--dataset", facts["train"]["path"])})
