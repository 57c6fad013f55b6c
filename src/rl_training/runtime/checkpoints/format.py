"""Checkpoint file format: tensors as safetensors, other values as canonical JSON, checksums in a manifest."""

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import numpy as np
import safetensors.torch
import torch
from pydantic import BaseModel, ConfigDict, NonNegativeInt
from safetensors import SafetensorError
from torch import Tensor

FORMAT_VERSION = 1
MANIFEST, STATE = "manifest.json", "state.json"

Span: TypeAlias = tuple[NonNegativeInt, NonNegativeInt]  # row numbers [start, stop)
Segments: TypeAlias = dict[str, Span]  # files of one replay buffer and the rows each file holds


class CheckpointError(Exception):
    """A checkpoint cannot be written or read; the message is `problem`, then `advice`."""

    def __init__(self, problem: str, advice: str = "") -> None:
        super().__init__(f"{problem}; {advice}" if advice else problem)
        self.problem, self.advice = problem, advice


class UnreadableCheckpointError(CheckpointError, ValueError):
    """A checkpoint that was given cannot be read, which is an error of the input."""


class StoredFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    size: NonNegativeInt
    sha256: str


class Manifest(BaseModel):
    """Size and checksum of every other file of a checkpoint, and the metadata of the run."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    format_version: int
    step: NonNegativeInt
    info: dict[str, Any]
    files: dict[str, StoredFile]
    replay: dict[str, Segments]

    def to_bytes(self) -> bytes:
        """Encodes the values and a checksum of their encoding without it."""
        values = self.model_dump()
        return canonical_json({**values, "sha256": hashlib.sha256(canonical_json(values)).hexdigest()})


def damaged(path: Path, cause: str) -> CheckpointError:
    advice = "use another checkpoint or copy this one again"
    return UnreadableCheckpointError(f"checkpoint {path} is damaged: {cause}", advice)


def step_name(step: int) -> str:
    return f"step_{step:09d}"


def write_file(path: Path, data: bytes) -> StoredFile:
    """Writes a new file and flushes it to disk."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return StoredFile(size=len(data), sha256=hashlib.sha256(data).hexdigest())


def verify_file(path: Path, name: str, stored: StoredFile) -> None:
    if (size := (path / name).stat().st_size) != stored.size:
        raise damaged(path, f"{name} has {size} bytes instead of {stored.size}")
    digest = hashlib.sha256()
    with open(path / name, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != stored.sha256:
        raise damaged(path, f"{name} does not match its checksum")


def canonical_json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, indent=2, allow_nan=False).encode() + b"\n"


def json_values(info: Mapping[str, Any]) -> dict[str, Any]:
    try:
        values: dict[str, Any] = json.loads(json.dumps(dict(info), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise type(error)(f"info must hold only JSON values: {error}") from error
    return values


def parse_json(path: Path, name: str, data: bytes) -> dict[str, Any]:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not JSON")

    try:
        values = json.loads(data, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"{name} is not valid JSON ({error})") from error
    if not isinstance(values, dict):
        raise damaged(path, f"{name} is not a JSON object")
    return values


def parse_manifest(path: Path, data: bytes) -> Manifest:
    values = parse_json(path, MANIFEST, data)
    if "format_version" not in values:
        raise damaged(path, f"{MANIFEST} has no format_version")
    if (version := values["format_version"]) != FORMAT_VERSION:
        raise UnreadableCheckpointError(
            f"checkpoint {path} has format {version!r}, but this version of rl_training reads format {FORMAT_VERSION}",
            "use the version of rl_training that wrote it",
        )
    values.pop("sha256", None)
    try:
        manifest = Manifest.model_validate(values)
        intact = manifest.to_bytes() == data
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"{MANIFEST} is malformed") from error
    if not intact:
        raise damaged(path, f"{MANIFEST} does not match its own checksum")
    needed = {STATE}.union(*manifest.replay.values())
    if unlisted := sorted(needed - manifest.files.keys()):
        raise damaged(path, f"{MANIFEST} has no checksum for {unlisted[0]}")
    return manifest


def check_name(kind: str, name: str) -> None:
    """Raises unless `name` can be part of a file name; "-" is reserved for segment numbers."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(f"the name of a {kind} must consist of lower-case letters, digits and _, got {name!r}")


def serialize(state: Mapping[str, Any]) -> dict[str, bytes]:
    """Returns file contents by name: one safetensors file per group with tensors, and `state.json` for the rest."""
    contents, values = {}, {}
    for group, value in state.items():
        check_name("state group", group)
        tensors: dict[str, Tensor] = {}
        values[group] = _encode(value, (group,), tensors)
        if tensors:
            contents[f"{group}.safetensors"] = serialize_tensors(tensors)
    contents[STATE] = canonical_json(values)
    return contents


def serialize_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    # Cloned because safetensors rejects tensors that share storage.
    return safetensors.torch.save(
        {name: tensors[name].detach().cpu().clone(memory_format=torch.contiguous_format) for name in sorted(tensors)}
    )


def parse_tensors(path: Path, name: str, data: bytes) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(data)
    except (SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise damaged(path, f"{name} cannot be read as safetensors ({error})") from error


def _encode(value: Any, path: tuple[str, ...], tensors: dict[str, Tensor]) -> Any:
    """Converts a value to JSON. Tensors move to `tensors` and are replaced by {"$tensor": name}.

    A key that starts with "$" is escaped with a second "$".
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        value = torch.from_numpy(value.astype(value.dtype.newbyteorder("="), order="C"))
    if isinstance(value, Tensor) and value.dtype != torch.complex128:  # not supported by safetensors
        name = "/".join(key.replace("~", "~0").replace("/", "~1") for key in path[1:])
        tensors[name] = value
        return {"$tensor": name}
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or key == "__metadata__":  # reserved by safetensors
                raise TypeError(f"keys must be strings other than '__metadata__', got {key!r} in {'/'.join(path)}")
        return {f"${key}" if key[:1] == "$" else key: _encode(value[key], (*path, key), tensors) for key in value}
    if isinstance(value, list | tuple):
        return [_encode(item, (*path, str(index)), tensors) for index, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}  # not representable in JSON
    if value is None or isinstance(value, bool | int | float | str):
        return value
    kind = value.dtype if isinstance(value, Tensor | np.ndarray) else type(value).__name__
    raise TypeError(f"a checkpoint can store tensors, numeric arrays and JSON values, got {kind} in {'/'.join(path)}")


def decode(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Inverse of `_encode`; removes the tensors it uses from `tensors`."""
    if isinstance(value, list):
        return [decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"$tensor"}:
        return tensors.pop(value["$tensor"])
    if value.keys() == {"$float"}:
        return float(value["$float"])
    return {key[1:] if key[:1] == "$" else key: decode(item, tensors) for key, item in value.items()}
