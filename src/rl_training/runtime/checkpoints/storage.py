"""Checkpoints are directories: written aside, renamed when whole and on the disk, verified before they are used."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import uuid
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from rl_training.runtime.checkpoints.format import (
    FORMAT_VERSION,
    MANIFEST,
    STATE,
    CheckpointError,
    Manifest,
    Segments,
    StoredFile,
    damaged,
    decode,
    json_values,
    parse_json,
    parse_manifest,
    parse_tensors,
    serialize,
    verify_file,
    write_file,
)

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "list_checkpoints",
    "newest_checkpoint",
    "read_checkpoint",
    "save_checkpoint",
]


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint; its tensors are read when asked for, to the CPU."""

    path: Path
    manifest: Manifest

    @property
    def step(self) -> int:
        return self.manifest.step

    @property
    def info(self) -> dict[str, Any]:
        return self.manifest.info

    @cached_property
    def state(self) -> dict[str, Any]:
        return {name: self.group(name) for name in self._values}

    def group(self, name: str) -> Any:
        """One top-level entry of the saved state; the others are not read."""
        if name not in self._values:
            raise CheckpointError(f"checkpoint {self.path} has no group {name!r}; it has {', '.join(self._values)}")
        file = f"{name}.safetensors"
        tensors = self.tensors(file) if file in self.manifest.files else {}
        try:
            value = decode(self._values[name], tensors)
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(self.path, f"{STATE} does not fit {file} ({error!r})") from error
        if tensors:
            raise damaged(self.path, f"{file} holds {', '.join(sorted(tensors))}, which {STATE} does not name")
        return value

    def tensors(self, file: str) -> dict[str, Tensor]:
        """All tensors of one file."""
        return parse_tensors(self.path, file, self._read(file))

    @cached_property
    def _values(self) -> dict[str, Any]:
        return parse_json(self.path, STATE, self._read(STATE))

    @cached_property
    def _manifest_bytes(self) -> bytes:
        return self.manifest.to_bytes()

    def _read(self, file: str) -> bytes:
        try:
            data = (self.path / file).read_bytes()
            manifest = (self.path / MANIFEST).read_bytes()
        except OSError as error:
            raise damaged(self.path, f"{file} cannot be read ({error.strerror})") from error
        # Directories are replaced whole: if the manifest is still the one that was verified, so was the file before it.
        if manifest != self._manifest_bytes:
            raise CheckpointError(f"checkpoint {self.path} was replaced while it was read; read it again")
        return data


class ReplayWriter(Protocol):
    """Puts the rows of replay rings beside the state; see `ReplaySegments`."""

    def write(self, directory: Path) -> tuple[dict[str, StoredFile], dict[str, Segments]]: ...
    def remember(self, checkpoint: Checkpoint) -> None: ...


def save_checkpoint(
    directory: Path,
    step: int,
    state: Mapping[str, Any],
    *,
    info: Mapping[str, Any],
    replay: ReplayWriter | None = None,
    keep: int = 3,
    protect: Container[int] = (),
) -> Path:
    """Write `directory/step_<step>`, then remove older ones but the newest `keep` and the steps in `protect`.

    A state holds dicts with string keys, lists, tensors, arrays and JSON values, under lower-case group names.
    Arrays come back as tensors, tuples as lists, numpy scalars as numbers; `info` holds JSON values only.
    """
    if step < 0:
        raise ValueError(f"step must be 0 or more, got {step}")
    if keep < 1:
        raise ValueError(f"keep must be 1 or more, got {keep}")
    contents, plain_info = serialize(state), json_values(info)
    target, aside = directory / f"step_{step:09d}", _aside(directory)
    try:
        manifest = _write(aside, step, contents, plain_info, replay)
        _publish(aside, target)
    except OSError as error:
        raise CheckpointError(
            f"could not write checkpoint {target}: {error.strerror}; make room or choose another directory "
            "(earlier checkpoints are untouched)"
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    if replay is not None:
        replay.remember(Checkpoint(target, manifest))
    _prune(directory, step, keep, protect)
    return target


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Verify every file of a checkpoint, and only then hand it out."""
    path = Path(path)
    if not path.is_dir():
        raise CheckpointError(f"no checkpoint at {path}: there is no such directory")
    try:
        present = {entry.name: entry.is_file(follow_symlinks=False) for entry in os.scandir(path)}
        if MANIFEST not in present:
            raise CheckpointError(f"{path} is not a checkpoint: it has no {MANIFEST}; give a step_... directory")
        if strange := sorted(name for name, is_plain_file in present.items() if not is_plain_file):
            raise damaged(path, f"{strange[0]} is not a plain file")
        manifest = parse_manifest(path, (path / MANIFEST).read_bytes())
        if unexpected := sorted(present.keys() - manifest.files.keys() - {MANIFEST}):
            raise damaged(path, f"{unexpected[0]} does not belong to it")
        if missing := sorted(manifest.files.keys() - present.keys()):
            raise damaged(path, f"{missing[0]} is missing")
        for name, stored in manifest.files.items():
            verify_file(path, name, stored)
    except OSError as error:
        raise damaged(path, f"{error.filename} cannot be read ({error.strerror})") from error
    return Checkpoint(path, manifest)


def list_checkpoints(directory: Path) -> list[Path]:
    """The checkpoints of a run, oldest first, not yet verified."""
    return [path for _, path in sorted(_checkpoints_by_step(directory).items())]


def newest_checkpoint(directory: Path, on_damaged: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that verifies; `on_damaged` is told why each newer one was passed over."""
    for path in reversed(list_checkpoints(directory)):
        try:
            return read_checkpoint(path)
        except CheckpointError as error:
            on_damaged(str(error))
    return None


def _aside(directory: Path) -> Path:
    return directory / f".tmp-{uuid.uuid4().hex}"


def _write(
    aside: Path, step: int, contents: dict[str, bytes], info: dict[str, Any], replay: ReplayWriter | None
) -> Manifest:
    aside.mkdir(parents=True)
    files = {name: write_file(aside / name, data) for name, data in contents.items()}
    segment_files, rings = ({}, {}) if replay is None else replay.write(aside)
    files |= segment_files
    manifest = Manifest(format_version=FORMAT_VERSION, step=step, info=info, files=files, replay=rings)
    write_file(aside / MANIFEST, manifest.to_bytes())
    _fsync_directory(aside)
    return manifest


def _publish(aside: Path, target: Path) -> None:
    if target.exists():
        # Between the two renames the old one is still found, under its other name; see _checkpoints_by_step.
        old = target.with_suffix(".old")
        _remove(old)
        os.replace(target, old)
    os.replace(aside, target)
    _fsync_directory(target.parent)


def _fsync_directory(directory: Path) -> None:
    if os.name == "nt":  # Windows cannot open directories
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _checkpoints_by_step(directory: Path) -> dict[int, Path]:
    """A `step_N.old` counts only where its replacement was cut short and `step_N` is not there."""
    if not directory.is_dir():
        return {}
    found: dict[int, Path] = {}
    for path in sorted(directory.iterdir(), reverse=True):  # step_N comes after step_N.old, and takes its place
        if match := re.fullmatch(r"step_([0-9]+)(\.old)?", path.name):
            found[int(match[1])] = path
    return found


def _prune(directory: Path, newest: int, keep: int, protect: Container[int]) -> None:
    for path in directory.glob("step_*.old"):
        if path.with_suffix("").exists():
            _remove(path)
    found = _checkpoints_by_step(directory)
    # Later steps are left alone: they are not old, but of a history that this run was not resumed from.
    for step in sorted(step for step in found if step <= newest)[:-keep]:
        if step not in protect:
            _remove(found[step])
    for path in directory.glob(".tmp-*"):
        shutil.rmtree(path, ignore_errors=True)


def _remove(path: Path) -> None:
    """Renamed first, so that a half-removed directory never passes for a checkpoint."""
    doomed = _aside(path.parent)
    with contextlib.suppress(OSError):  # what cannot be removed now will be tried again at the next save
        os.replace(path, doomed)
    shutil.rmtree(doomed, ignore_errors=True)
