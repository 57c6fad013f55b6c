"""Copies checkpoints to where an agent is saved."""

import shutil
from pathlib import Path

from rl_training.experiment.agent import CHECKPOINTS
from rl_training.files import fsync_directory, remove_directory, temporary_directory
from rl_training.runtime.checkpoints.format import MANIFEST


def copy_checkpoint(source: Path, target: Path, *, overwrite: bool) -> Path:
    """Copies a checkpoint whole or not at all. A copy that `target` already holds is left as it is."""
    if target.exists():
        if _manifest(target) == _manifest(source):
            return target
        _require_replaceable(target, overwrite=overwrite)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_directory(target.parent)
    try:
        shutil.copytree(source, temporary)
        if target.exists():
            remove_directory(target)
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    fsync_directory(target.parent)
    return target


def _require_replaceable(target: Path, *, overwrite: bool) -> None:
    if _manifest(target) is None:
        raise FileExistsError(f"{target} already exists and is not a saved agent. Choose another path.")
    if target.absolute().parent.name == CHECKPOINTS:
        raise FileExistsError(f"{target} is a checkpoint of a run. Choose another path.")
    if not overwrite:
        raise FileExistsError(
            f"{target} already exists and holds another agent. Choose another path, or replace it with overwrite=True."
        )


def _manifest(path: Path) -> bytes | None:
    """The manifest of a checkpoint, which lists the checksums of all its files."""
    try:
        return (path / MANIFEST).read_bytes()
    except OSError:
        return None
