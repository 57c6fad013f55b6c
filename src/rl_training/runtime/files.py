"""Writes files so that a crash leaves either the old contents or the new."""

import os
from pathlib import Path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a temporary file, flushes it to disk and renames it; a link at `path` stays a link."""
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    fsync_directory(path.parent)


def fsync_directory(directory: Path) -> None:
    """Flushes the names in a directory to disk: new files, renamed ones and removed ones."""
    if os.name == "nt":  # directories cannot be opened on Windows
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
