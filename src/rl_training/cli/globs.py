"""Unquoted patterns: the shell replaces `--dataset logs/*.csv` by the files, which become one pattern again."""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Sequence
from itertools import takewhile
from pathlib import Path

import typer

SUFFIXES = (".csv", ".csv.gz", ".parquet", ".npz", ".hdf5", ".h5")


def join_files(arguments: Sequence[str], options: Collection[str]) -> list[str]:
    """Replaces several files after one of the `options`, which take a dataset, by a pattern that stands for them."""
    joined: list[str] = []
    files: list[str] = []
    option = ""
    for argument in [*arguments, ""]:  # the last one ends a list of files
        if option and argument.endswith(SUFFIXES) and Path(argument).is_file():
            files.append(argument)
            continue
        joined += [pattern_of(files, option)] if len(files) > 1 else files
        joined.append(argument)
        option, files = argument if argument in options else "", []
    return joined[:-1]


def pattern_of(files: Sequence[str], option: str) -> str:
    """A pattern that matches exactly these files."""
    folder, names = os.path.dirname(files[0]), [os.path.basename(file) for file in files]
    start, end = _shared_start(names), _shared_start([name[::-1] for name in names])[::-1]
    suffix = next(each for each in SUFFIXES if names[0].endswith(each))
    for name in (f"*{suffix}", f"{glob.escape(start)}*{glob.escape(end)}"):
        pattern = os.path.join(glob.escape(folder), name)
        if sorted(glob.glob(pattern)) == sorted(files):
            return pattern
    raise typer.BadParameter(
        f"{option} takes one file or pattern, got {len(files)} files that no pattern stands for, the first is "
        f"{files[0]}; put them into a folder of their own"
    )


def _shared_start(names: Sequence[str]) -> str:
    letters = takewhile(lambda several: len({*several}) == 1, zip(*names, strict=False))
    return "".join(several[0] for several in letters)
