"""What stands in the files of a checkpoint: tensors as safetensors, the rest as canonical JSON, and a manifest."""

from __future__ import annotations

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

Span: TypeAlias = tuple[NonNegativeInt, NonNegativeInt]  # row numbers: the first, and one past the last
Segments: TypeAlias = dict[str, Span]  # the files of one replay ring, and which rows each holds


class CheckpointError(Exception):
    """A checkpoint cannot be written or read; the message names the path, the cause and the way out."""


class StoredFile(BaseModel):
    """What a file must measure to be trusted."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    size: NonNegativeInt
    sha256: str


class Manifest(BaseModel):
    """All other files of the checkpoint, and under what circumstances they were written."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    format_version: int
    step: NonNegativeInt
    info: dict[str, Any]
    files: dict[str, StoredFile]
    replay: dict[str, Segments]

    def to_bytes(self) -> bytes:
        values = self.model_dump()
        return canonical_json({**values, "sha256": hashlib.sha256(canonical_json(values)).hexdigest()})


def damaged(path: Path, cause: str) -> CheckpointError:
    return CheckpointError(f"checkpoint {path} is damaged: {cause}; use another checkpoint or copy this one anew")


def write_file(path: Path, data: bytes) -> StoredFile:
    """Write a new file through to the disk."""
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
    """The values as they will come back from JSON."""
    try:
        values: dict[str, Any] = json.loads(canonical_json(dict(info)))
    except (TypeError, ValueError) as error:
        raise type(error)(f"info must hold JSON values only: {error}") from error
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
        raise CheckpointError(
            f"checkpoint {path} is of format {version!r}, and this version of rl_training reads format "
            f"{FORMAT_VERSION}; use the version that wrote it"
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
        raise damaged(path, f"{MANIFEST} gives no checksum of {unlisted[0]}")
    return manifest


def check_name(kind: str, name: str) -> None:
    """Names become file names; "-" is kept for the numbers of segments."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(f"{kind} must be named in lower-case letters, digits and _, got {name!r}")


def serialize(state: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of a state: for each group that has tensors one file of them, and one for all that is not a tensor."""
    contents, values = {}, {}
    for group, value in state.items():
        check_name("a state group", group)
        tensors: dict[str, Tensor] = {}
        values[group] = _encode(value, (group,), tensors)
        if tensors:
            contents[f"{group}.safetensors"] = serialize_tensors(tensors)
    contents[STATE] = canonical_json(values)
    return contents


def serialize_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    # Cloned, since safetensors refuses views of one storage; two views come back as two tensors.
    return safetensors.torch.save(
        {name: tensors[name].detach().cpu().clone(memory_format=torch.contiguous_format) for name in sorted(tensors)}
    )


def parse_tensors(path: Path, name: str, data: bytes) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(data)
    except (SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise damaged(path, f"{name} is not readable as safetensors ({error})") from error


def _encode(value: Any, path: tuple[str, ...], tensors: dict[str, Tensor]) -> Any:
    """The JSON form of a value. A tensor goes into `tensors` and leaves its name, as {"$tensor": name}.

    Keys of the state that begin with "$" get a second one, so that no state can be mistaken for such a mark.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        value = torch.from_numpy(value.astype(value.dtype.newbyteorder("="), order="C"))
    if isinstance(value, Tensor) and value.dtype != torch.complex128:  # which safetensors cannot hold
        name = "/".join(key.replace("~", "~0").replace("/", "~1") for key in path[1:])
        tensors[name] = value
        return {"$tensor": name}
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or key == "__metadata__":  # a name that safetensors keeps for itself
                raise TypeError(f"keys must be strings other than '__metadata__', got {key!r} in {'/'.join(path)}")
        return {f"${key}" if key[:1] == "$" else key: _encode(value[key], (*path, key), tensors) for key in value}
    if isinstance(value, list | tuple):
        return [_encode(item, (*path, str(index)), tensors) for index, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}  # JSON has no word for it
    if value is None or isinstance(value, bool | int | float | str):
        return value
    kind = value.dtype if isinstance(value, Tensor | np.ndarray) else type(value).__name__
    raise TypeError(f"a checkpoint holds tensors, arrays of numbers and JSON values, got {kind} in {'/'.join(path)}")


def decode(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The value whose JSON form this is; its tensors are taken out of `tensors`."""
    if isinstance(value, list):
        return [decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"$tensor"}:
        return tensors.pop(value["$tensor"])
    if value.keys() == {"$float"}:
        return float(value["$float"])
    return {key[1:] if key[:1] == "$" else key: decode(item, tensors) for key, item in value.items()}
