"""Finds processes of this machine in /proc."""

from __future__ import annotations

from pathlib import Path


def is_alive(process: int) -> bool:
    status = Path(f"/proc/{process}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def worker_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def below(process: int) -> list[int]:
    """The processes that a process has started, directly or not."""
    children = [int(word) for task in Path(f"/proc/{process}/task").iterdir()
                for word in (task / "children").read_text().split()]  # fmt: skip
    return [each for child in children for each in (child, *below(child))]
