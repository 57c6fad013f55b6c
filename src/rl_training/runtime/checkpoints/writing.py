"""Writes checkpoints: to a temporary directory first, renamed once every file is on disk."""

import shutil
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from rl_training.files import TEMPORARY, fsync_directory, publish_directory, remove_directory, temporary_directory
from rl_training.runtime.checkpoints.format import (
    FORMAT_VERSION,
    MANIFEST,
    CheckpointError,
    Manifest,
    json_values,
    serialize,
    step_name,
    write_file,
)
from rl_training.runtime.checkpoints.reading import Checkpoint, checkpoints_by_step
from rl_training.runtime.checkpoints.replay_segments import ReplaySegments


def save_checkpoint(
    directory: Path, step: int, state: Mapping[str, Any], *, info: Mapping[str, Any],
    replay: ReplaySegments | None = None, keep: int = 3, protect: Container[int] = (),
) -> Path:  # fmt: skip
    """Writes `directory/step_<step>`, then removes older checkpoints except the newest `keep` and those in `protect`.

    `state` maps lower-case group names to dicts with string keys, lists, tensors, arrays and JSON values.
    Arrays are restored as tensors, tuples as lists and NumPy scalars as Python numbers.
    """
    if step < 0:
        raise ValueError(f"step must be 0 or more, got {step}")
    if keep < 1:
        raise ValueError(f"keep must be 1 or more, got {keep}")
    contents, plain_info = serialize(state), json_values(info)
    target, temporary = directory / step_name(step), temporary_directory(directory)
    try:
        manifest = _write(temporary, target, step, contents, plain_info, replay)
        publish_directory(temporary, target)
    except OSError as error:
        raise CheckpointError(
            f"could not write checkpoint {target}: {error.strerror}; free disk space or choose another directory "
            "(earlier checkpoints are intact)"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    if replay is not None:
        replay.remember(Checkpoint(target, manifest))
    _prune(directory, step, keep, protect)
    return target


def _write(
    temporary: Path, target: Path, step: int, contents: dict[str, bytes], info: dict[str, Any],
    replay: ReplaySegments | None,
) -> Manifest:  # fmt: skip
    temporary.mkdir(parents=True)
    files = {name: write_file(temporary / name, data) for name, data in contents.items()}
    segment_files, segments = ({}, {}) if replay is None else replay.write(temporary, target)
    files |= segment_files
    manifest = Manifest(format_version=FORMAT_VERSION, step=step, info=info, files=files, replay=segments)
    write_file(temporary / MANIFEST, manifest.to_bytes())
    fsync_directory(temporary)
    return manifest


def _prune(directory: Path, newest: int, keep: int, protect: Container[int]) -> None:
    for path in directory.glob("step_*.old"):
        if path.with_suffix("").exists():
            remove_directory(path)
    found = checkpoints_by_step(directory)
    # Later steps stay: they belong to a run that was resumed from an earlier checkpoint.
    for step in sorted(step for step in found if step <= newest)[:-keep]:
        if step not in protect:
            remove_directory(found[step])
    for path in directory.glob(f"{TEMPORARY}*"):
        shutil.rmtree(path, ignore_errors=True)
