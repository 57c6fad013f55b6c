"""Copies checkpoints to where an agent is saved."""

import os
import shutil
from pathlib import Path

from rl_training.experiment.agent import CHECKPOINTS
from rl_training.experiment.result import is_run
from rl_training.files import fsync_directory, require_writable, temporary_directory
from rl_training.runtime.checkpoints.format import MANIFEST, CheckpointError
from rl_training.runtime.checkpoints.reading import Checkpoint, read_checkpoint


def copy_checkpoint(source: Checkpoint, path: Path, *, overwrite: bool) -> Path:
    """Copies a checkpoint whole or not at all, and returns `path`. An intact copy there is left as it is."""
    target = Path(os.path.realpath(path))  # a link at `path` stays a link
    if target.exists():
        if _is_copy(target, source):
            return path
        _require_replaceable(target, source, path, overwrite=overwrite)
    target.parent.mkdir(parents=True, exist_ok=True)
    require_writable(target.parent, path)
    temporary, old = temporary_directory(target.parent), temporary_directory(target.parent)
    try:
        shutil.copytree(source.path, temporary)
        if target.exists():
            os.replace(target, old)
        os.replace(temporary, target)
    finally:
        if old.exists() and not target.exists():
            os.replace(old, target)
        for directory in (temporary, old):
            shutil.rmtree(directory, ignore_errors=True)
    fsync_directory(target.parent)
    return path


def _require_replaceable(target: Path, source: Checkpoint, path: Path, *, overwrite: bool) -> None:
    try:
        manifest = (target / MANIFEST).read_bytes()
    except OSError:
        raise FileExistsError(f"{path} already exists and is not a saved agent. Choose another path.") from None
    if target.parent.name == CHECKPOINTS and is_run(target.parent.parent):
        raise FileExistsError(f"{path} is a checkpoint of a run. Choose another path.")
    is_damaged_copy = manifest == source.manifest.to_bytes()
    if not overwrite and not is_damaged_copy:
        raise FileExistsError(
            f"{path} already exists and holds another agent. Choose another path, or replace it with overwrite=True."
        )


def _is_copy(target: Path, source: Checkpoint) -> bool:
    try:
        return read_checkpoint(target).manifest == source.manifest
    except CheckpointError:
        return False
