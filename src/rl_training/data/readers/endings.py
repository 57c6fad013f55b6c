"""Endings of dataset files: those that can be read, and what to do about others."""

from collections.abc import Sequence
from pathlib import Path

CONTENTS = {b"PAR1": ".parquet", b"\x89HDF": ".hdf5", b"PK\x03\x04": ".npz", b"\x1f\x8b": ".csv.gz"}  # by first bytes
SAME = {".h5": ".hdf5"}
TEXT = ("", ".txt", ".tsv", ".tab", ".dat")


def ending_of(path: Path, readable: Sequence[str]) -> str | None:
    """Returns the ending of a file that can be read, or None if there is no such file.

    Raises ValueError for a folder, for other endings, and for contents that belong to another ending.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder; {_files_of(path, readable)}")
    ending = next((each for each in readable if path.name.endswith(each)), None)
    if ending is None and (path.suffix or path.exists()):
        raise ValueError(
            f"cannot read {path}: supported are {', '.join(readable)} files and Minari datasets; {_remedy(path)}"
        )
    if ending is None or not path.is_file():
        return None
    contents = _contents(path)
    if contents is not None and contents != SAME.get(ending, ending):
        raise ValueError(f"{path} holds the contents of a {contents} file; rename it to end in {contents}")
    return ending


def _files_of(folder: Path, readable: Sequence[str]) -> str:
    found = next((each for each in readable for file in folder.iterdir() if file.name.endswith(each)), None)
    if found is None:
        return f"it has no file that can be read ({', '.join(readable)}), and it is no Minari dataset"
    return f"name its files: '{folder}/*{found}'"


def _remedy(path: Path) -> str:
    if path.suffix not in TEXT:
        return "read it with pandas, and pass the frame to TransitionDataset.from_dataframe"
    contents = _contents(path) if path.is_file() else None
    return f"rename it to end in {contents or '.csv'}{'' if contents else ' if it is a table of text'}"


def _contents(path: Path) -> str | None:
    with path.open("rb") as file:
        start = file.read(4)
    return next((ending for first, ending in CONTENTS.items() if start.startswith(first)), None)
