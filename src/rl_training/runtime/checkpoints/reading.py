"""Finds, verifies and reads checkpoints."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from rl_training.runtime.checkpoints.format import (
    MANIFEST,
    STATE,
    CheckpointError,
    Manifest,
    UnreadableCheckpointError,
    damaged,
    decode,
    parse_json,
    parse_manifest,
    parse_tensors,
    verify_file,
)


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint. Tensors are read to the CPU when they are accessed."""

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
        """Reads one top-level entry of the saved state and no other."""
        if name not in self._values:
            groups = ", ".join(self._values)
            raise UnreadableCheckpointError(f"checkpoint {self.path} has no group {name!r}; it has {groups}")
        file = f"{name}.safetensors"
        tensors = self.tensors(file) if file in self.manifest.files else {}
        try:
            value = decode(self._values[name], tensors)
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(self.path, f"{STATE} does not match {file} ({error!r})") from error
        if tensors:
            raise damaged(self.path, f"{file} holds tensors that {STATE} does not list: {', '.join(sorted(tensors))}")
        return value

    def tensors(self, file: str) -> dict[str, Tensor]:
        return parse_tensors(self.path, file, self._read(file))

    @cached_property
    def _values(self) -> dict[str, Any]:
        return parse_json(self.path, STATE, self._read(STATE))

    @cached_property
    def _manifest_file(self) -> bytes:
        return self.manifest.to_bytes()

    def _read(self, file: str) -> bytes:
        try:
            data = (self.path / file).read_bytes()
            manifest = (self.path / MANIFEST).read_bytes()
        except OSError as error:
            raise damaged(self.path, f"{file} cannot be read ({error.strerror})") from error
        # A checkpoint directory is replaced as a whole: an unchanged manifest proves that the file is unchanged too.
        if manifest != self._manifest_file:
            raise UnreadableCheckpointError(f"checkpoint {self.path} was replaced during reading; read it again")
        return data


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Verifies the checksum of every file, then returns the checkpoint."""
    path = Path(path)
    if not path.is_dir():
        raise UnreadableCheckpointError(f"no checkpoint at {path}: the directory does not exist")
    try:
        present = {entry.name: entry.is_file(follow_symlinks=False) for entry in os.scandir(path)}
        if MANIFEST not in present:
            problem = f"{path} is not a checkpoint: it has no {MANIFEST}"
            raise UnreadableCheckpointError(problem, "pass a step_... directory")
        if irregular := sorted(name for name, is_regular in present.items() if not is_regular):
            raise damaged(path, f"{irregular[0]} is not a regular file")
        manifest = parse_manifest(path, (path / MANIFEST).read_bytes())
        if unexpected := sorted(present.keys() - manifest.files.keys() - {MANIFEST}):
            raise damaged(path, f"{unexpected[0]} is not listed in {MANIFEST}")
        if missing := sorted(manifest.files.keys() - present.keys()):
            raise damaged(path, f"{missing[0]} is missing")
        for name, stored in manifest.files.items():
            verify_file(path, name, stored)
    except OSError as error:
        raise damaged(path, f"{error.filename} cannot be read ({error.strerror})") from error
    return Checkpoint(path, manifest)


def list_checkpoints(directory: Path) -> list[Path]:
    """Lists the checkpoints of a run, oldest first, without verifying them."""
    return [path for _, path in sorted(checkpoints_by_step(directory).items())]


def newest_checkpoint(directory: Path, on_damaged: Callable[[str], None]) -> Checkpoint | None:
    """Returns the newest intact checkpoint; `on_damaged` receives the error of each damaged newer one."""
    for path in reversed(list_checkpoints(directory)):
        try:
            return read_checkpoint(path)
        except CheckpointError as error:
            on_damaged(str(error))
    return None


def checkpoints_by_step(directory: Path) -> dict[int, Path]:
    """Maps steps to checkpoints. `step_N.old` counts only if its replacement `step_N` was never completed."""
    if not directory.is_dir():
        return {}
    found: dict[int, Path] = {}
    for path in sorted(directory.iterdir(), reverse=True):  # step_N follows step_N.old and replaces it
        if match := re.fullmatch(r"step_([0-9]+)(\.old)?", path.name):
            found[int(match[1])] = path
    return found
