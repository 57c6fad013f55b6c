"""Writes files and directories so that a crash leaves either the old contents or the new, and reads JSON files."""

import errno
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

TEMPORARY = ".tmp-"  # start of the names of files and directories that are not complete


@contextmanager
def complete_file(path: Path) -> Iterator[IO[bytes]]:
    """Yields a temporary file that is flushed to disk and renamed at the end; a link at `path` stays a link.

    After an error it is removed, and an old file stays.
    """
    path = Path(os.path.realpath(path))
    own = uuid.uuid4().hex[:12]  # another process may write the same file
    temporary = path.with_name(f"{TEMPORARY}{own}-{path.name}")
    with errors_naming(path):
        try:
            with temporary.open("x+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        fsync_directory(path.parent)


def write_atomically(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with complete_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if the file is missing or damaged."""
    try:
        return dict(json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError):
        return {}


@contextmanager
def errors_naming(path: Path) -> Iterator[None]:
    """Makes errors of the system name `path` instead of a temporary file or none."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error


def require_writable(path: Path, named: Path) -> None:
    """Raises PermissionError with the name of the file to write, before any work is done."""
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(named))


def require_directory(path: Path) -> None:
    """Raises an error, before any work is done, if no file can be written at this path."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path.name}: directory {path.parent} does not exist")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory; name a file in it")
    require_writable(path if path.exists() else path.parent, path)


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
    """The name of a new hidden directory; after a crash, a later save deletes it."""
    return parent / f"{TEMPORARY}{uuid.uuid4().hex}"


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
    with suppress(OSError):  # the next save tries again
        os.replace(path, temporary)
    shutil.rmtree(temporary, ignore_errors=True)
