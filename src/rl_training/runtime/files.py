"""Writes files and directories so that a crash leaves either the old contents or the new."""

import contextlib
import errno
import os
import shutil
import uuid
from pathlib import Path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a temporary file, flushes it to disk and renames it; a link at `path` stays a link."""
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:  # such as a full disk
        temporary.unlink(missing_ok=True)
        raise
    fsync_directory(path.parent)


def require_writable(path: Path, named: Path) -> None:
    """Raises PermissionError with the name of the file to write, before any work is done."""
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(named))


def fsync_directory(directory: Path) -> None:
    """Flushes the names in a directory to disk: new files, renamed ones and removed ones."""
    if os.name == "nt":  # directories cannot be opened on Windows
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def temporary_directory(parent: Path) -> Path:
    """The name of a new hidden directory; what a crash leaves in one is deleted later."""
    return parent / f".tmp-{uuid.uuid4().hex}"


def publish_directory(temporary: Path, target: Path) -> None:
    """Renames a complete directory to `target`, which it replaces."""
    if target.exists():
        # If the process dies between the two renames, `checkpoints_by_step` still finds the old checkpoint.
        old = target.with_suffix(".old")
        remove_directory(old)
        os.replace(target, old)
    os.replace(temporary, target)
    fsync_directory(target.parent)


def remove_directory(path: Path) -> None:
    """Renames the directory before deleting it, so that a partly deleted one is never taken for a complete one."""
    temporary = temporary_directory(path.parent)
    with contextlib.suppress(OSError):  # the next save tries again
        os.replace(path, temporary)
    shutil.rmtree(temporary, ignore_errors=True)
