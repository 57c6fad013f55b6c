"""Unquoted patterns: the shell replaces `--dataset logs/*.csv` by the files, which become one pattern again."""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Sequence
from itertools import takewhile
from pathlib import Path

import typer

SUFFIXES = (".csv", ".csv.gz", ".parquet", ".npz", ".hdf5", ".h5")


def join_files(arguments: Sequence[str], options: Collection[str], lists: Collection[str] = ()) -> list[str]:
    """Replaces several files after one of the `options`, which take a dataset, by a pattern that stands for them.

    Several files after one of `lists`, which take several datasets, are refused: they may be one dataset or several.
    """
    joined: list[str] = []
    files: list[str] = []
    option = ""
    for argument in [*arguments, ""]:  # the last one ends a list of files
        file = argument.rstrip(",") if option in lists else argument
        if option and file.endswith(SUFFIXES) and Path(file).is_file():
            files.append(file)
            continue
        if option in lists and len(files) > 1:
            raise typer.BadParameter(_several(option, files))
        joined += [pattern_of(files, option)] if len(files) > 1 else files
        joined.append(argument)
        option = argument if argument in {*options, *lists} else ""
        files = []
    return joined[:-1]


def _several(option: str, files: Sequence[str]) -> str:
    listed = ",".join(files[:2]) + (",…" if len(files) > 2 else "")
    pattern = os.path.join(os.path.dirname(files[0]), f"*{_suffix(files[0])}")
    return (
        f"{option}: got {len(files)} files; write {option} {listed} for one task per file, "
        f"or a pattern in quotes, {option} '{pattern}', for one task with all of them"
    )


def _suffix(file: str) -> str:
    return next(each for each in SUFFIXES if file.endswith(each))


def pattern_of(files: Sequence[str], option: str) -> str:
    """A pattern that matches exactly these files."""
    folder, names = os.path.dirname(files[0]), [os.path.basename(file) for file in files]
    start, end = _shared_start(names), _shared_start([name[::-1] for name in names])[::-1]
    for name in (f"*{_suffix(names[0])}", f"{glob.escape(start)}*{glob.escape(end)}"):
        pattern = os.path.join(glob.escape(folder), name)
        if sorted(glob.glob(pattern)) == sorted(files):
            return pattern
    raise typer.BadParameter(
        f"{option} takes one file or pattern, got {len(files)} files that no single pattern matches, such as "
        f"{files[0]}; move them to a folder of their own"
    )


def _shared_start(names: Sequence[str]) -> str:
    letters = takewhile(lambda several: len({*several}) == 1, zip(*names, strict=False))
    return "".join(several[0] for several in letters)
