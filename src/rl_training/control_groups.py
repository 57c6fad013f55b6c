"""Control groups of Linux (cgroups), which limit the memory and the cores of a container or a job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
MEMORY_FILES = {  # by version: limit, use, and the name of the cache of files in memory.stat
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


def limiting_groups(controller: str) -> Iterator[tuple[int, Path]]:
    """The version (1 or 2) and folder of each group of this process that may limit `controller`, its own first."""
    for row in rows_of(MEMBERSHIP):
        _, controllers, path = row.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        version, root = (1, GROUPS / controller) if controllers else (2, GROUPS)
        own = root / path.lstrip("/")
        for folder in (own, *(parent for parent in own.parents if parent.is_relative_to(root))):
            yield version, folder


def numbers_in(file: Path) -> list[int]:
    """The numbers in a file of one row; none if it is missing or holds a word, such as `max` for no limit."""
    words = " ".join(rows_of(file)).split()
    return [int(word) for word in words] if all(word.isdecimal() for word in words) else []


def rows_of(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:  # also outside Linux
        return []
