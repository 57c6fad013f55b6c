"""Readers of dataset files, one module per format."""

import glob
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from traceback import walk_tb
from typing import TypeAlias

import numpy as np

from rl_training.data.readers.cells import sorted_words
from rl_training.data.readers.csv import csv_table
from rl_training.data.readers.dates import DAY, MONTH, UnclearDates
from rl_training.data.readers.endings import ending_of
from rl_training.data.readers.hdf5 import read_hdf5
from rl_training.data.readers.joining import has_actions, join_files, order_in_file, require_same_order
from rl_training.data.readers.minari import datasets_root, local_ids, minari_directory, read_minari
from rl_training.data.readers.names import Names, as_patterns
from rl_training.data.readers.npz import read_npz
from rl_training.data.readers.options import Numbers, TableOptions
from rl_training.data.readers.parquet import parquet_table
from rl_training.data.readers.rewards import with_rewards
from rl_training.data.readers.rows import StoredColumns
from rl_training.data.readers.tables import read_table
from rl_training.data.readers.timing import from_first_time

ARRAYS = {".npz": read_npz, ".hdf5": read_hdf5, ".h5": read_hdf5}
TABLES = {".parquet": parquet_table, ".csv": csv_table, ".csv.gz": csv_table}
READERS = (*ARRAYS, *TABLES)
MINARI = "minari:"  # an optional prefix of Minari ids
Source: TypeAlias = "str | Path | Sequence[str | Path]"


@np.errstate(over="ignore")  # numbers beyond float32 become infinite, which is rejected later
def read_columns(
    source: Source, *, columns: Mapping[str, Names] | None = None, options: TableOptions | None = None
) -> StoredColumns:
    """Reads a file, several files, a glob of files or a Minari dataset, without validation."""
    patterns = as_patterns(columns or {})
    several = [source] if isinstance(source, (str, Path)) else source
    paths = [path for each in several for path in _paths(each)]
    options = options or TableOptions()
    parts, options = _read_all(paths, patterns, options)
    text_ids = {part.labels.text_ids for part in parts if part.spec is None}
    if len(text_ids) > 1:  # ids are text in some files and numbers in others
        fresh: dict[str, dict[object, int]] = {name: {} for name in options.ids}
        options = replace(options, ids=fresh, mixed_ids=frozenset().union(*text_ids))
        parts, options = _read_all(paths, patterns, options)
    tables = [part for part in parts if part.spec is None and part.labels.names and part.columns["dones"].any()]
    if len({part.labels.final_rows for part in tables}) > 1:
        # Other files have an action in their terminal rows, so those of the first kind are incomplete.
        parts, options = _read_all(paths, patterns, replace(options, final_rows=False))
    numbers = _joint_numbers(parts)
    if len({str(part.labels.categories) + str(part.labels.action_start) for part in parts}) > 1 or numbers:
        shared = _shared(parts, options, numbers)  # the files hold different choices, so they are read again with all
        parts = [_read(path, patterns, shared) for path in paths]
    require_same_order([order_in_file(part) for part in parts], paths)
    return with_rewards(from_first_time(join_files(parts, paths)), patterns)


def _read_all(
    paths: Sequence[Path], columns: Mapping[str, str], options: TableOptions
) -> tuple[list[StoredColumns], TableOptions]:
    """Reads the files, with the order of day and month that one shows where the dates of another do not."""
    parts: list[StoredColumns] = []
    unclear: list[UnclearDates] = []
    for path in paths:
        try:
            parts.append(_read(path, columns, options))
        except UnclearDates as error:
            unclear.append(error)
    orders = {part.labels.date_order for part in parts}
    if not options.date_order and (len(orders) > 1 or unclear) and len(shown := orders & {DAY, MONTH}) == 1:
        return _read_all(paths, columns, replace(options, date_order=shown.pop()))
    if unclear:
        raise unclear[0]
    return parts, options


def shown(source: Source) -> str:
    """The source in messages: its name, or the first of several."""
    if isinstance(source, (str, Path)):
        return str(source)
    return f"{source[0]} and {len(source) - 1} more" if len(source) > 1 else str(source[0])


def _joint_numbers(parts: Sequence[StoredColumns]) -> Numbers | None:
    """The numbers of the choices in all files, if a file alone would begin with another one; else None."""
    found = [part.labels.action_numbers for part in parts if has_actions(part)]
    numbers = [each for each in found if each is not None]
    if not numbers or len(numbers) < len(found) or len({len(each.low) for each in numbers}) > 1:
        return None
    low, high = np.fmin.reduce([each.low for each in numbers]), np.fmax.reduce([each.high for each in numbers])
    joint = Numbers(tuple(low.tolist()), tuple(high.tolist()))
    alone = [np.any(joint.from_1 if own is None else joint.from_1 != own.from_1)
             for own in (part.labels.action_numbers for part in parts)]  # fmt: skip
    return joint if any(alone) else None


def _shared(parts: Sequence[StoredColumns], options: TableOptions, numbers: Numbers | None) -> TableOptions:
    """Options with the categories and the numbers of the actions of all files.

    Actions that are choices in some files only start at 0, unless all files agree in another number.
    """
    found: dict[str, set[str]] = {}
    for part in parts:
        for name, values in part.labels.categories.items():
            found.setdefault(name, set()).update(values)
    known = {name: tuple(sorted_words(values)) for name, values in found.items()}
    given = {name: values for name, values in options.categories.items() if values}
    starts = {part.labels.action_start for part in parts}
    start = options.action_start if len(starts) == 1 else 0
    categories = {**options.categories, **known, **given}
    if numbers is not None:
        return replace(options, categories=categories, action_numbers=numbers)
    return replace(options, categories=categories, action_start=start)


def _paths(source: str | Path) -> list[Path]:
    if Path(source).exists() or not glob.has_magic(str(source)):
        return [Path(source)]
    if found := sorted(map(Path, glob.glob(str(source), recursive=True))):
        return found
    raise FileNotFoundError(f"no file matches {source}")


def _read(path: Path, columns: Mapping[str, str], options: TableOptions) -> StoredColumns:
    path = Path(str(path).removeprefix(MINARI))
    if not path.is_file() and (directory := minari_directory(path)):
        with naming_damage(directory):
            return read_minari(directory, columns)
    suffix = ending_of(path, READERS)
    if suffix is None:
        close = get_close_matches(path.as_posix(), local_ids(), 1)
        hint = f"did you mean {close[0]}?" if close else f"`minari download {path}` may fetch it"
        minari = f", nor a Minari dataset in {datasets_root()}; {hint}"
        folder = "" if path.is_absolute() else f" in {Path.cwd()}"
        raise FileNotFoundError(f"dataset file {path} not found{folder if path.suffix else minari}")
    with naming_damage(path):
        if suffix in ARRAYS:
            return ARRAYS[suffix](path, columns)
        with TABLES[suffix](path, options) as table:
            return read_table(table, columns, options)


@contextmanager
def naming_damage(path: Path) -> Iterator[None]:
    """Replaces errors of the libraries that read files; those raised in this package name the problem already."""
    try:
        yield
    except PermissionError:
        raise
    except Exception as error:
        *_, (frame, _) = walk_tb(error.__traceback__)
        ours = frame.f_globals.get("__name__", "").startswith("rl_training.")
        if ours and isinstance(error, ValueError | TypeError | ImportError | FileNotFoundError):
            raise
        if isinstance(error, UnicodeEncodeError) and not str(path).isprintable():  # has bytes that are no letters here
            raise ValueError(f"{path} has a name that is no UTF-8 text here; set PYTHONUTF8=1, or rename it") from error
        cause = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path} is damaged and cannot be read ({cause}); copy or download it again") from error
