"""Whether two runs are one and the same, byte for byte, and where they are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rl_training.experiment.agent import find_checkpoint
from rl_training.runtime.callbacks.logging import TIME_FIELDS
from rl_training.runtime.checkpoints.reading import Checkpoint

STATE, METRICS = "state.json", "metrics.jsonl"


def compare_runs(a: Path, b: Path) -> list[str]:
    """The differences of two run directories, a sentence each; none: they are equal.

    Compared are the tensors of the newest checkpoint by name, its state.json, and metrics.jsonl less its time fields.
    """
    ours, theirs = find_checkpoint(a), find_checkpoint(b)
    if ours.step != theirs.step:
        return [f"the newest checkpoint is of step {ours.step} in {a}, of step {theirs.step} in {b}"]
    differences = _tensor_differences(ours, theirs)
    if (ours.path / STATE).read_bytes() != (theirs.path / STATE).read_bytes():
        differences.append(f"{STATE} differs at step {ours.step}")
    return differences + _metric_differences(_rows(a / METRICS), _rows(b / METRICS))


def _tensor_differences(a: Checkpoint, b: Checkpoint) -> list[str]:
    ours, theirs = _tensors(a), _tensors(b)
    one_sided = [f"{name} is in one checkpoint only" for name in sorted(ours.keys() ^ theirs.keys())]
    shared = sorted(ours.keys() & theirs.keys())
    return one_sided + [f"{name} differs at step {a.step}" for name in shared if not _equal(ours[name], theirs[name])]


def _tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    files = [file for file in checkpoint.manifest.files if file.endswith(".safetensors")]
    return {f"{file}: {name}": tensor for file in files for name, tensor in checkpoint.tensors(file).items()}


def _equal(a: Tensor, b: Tensor) -> bool:
    """Equal bytes: a NaN equals itself, and 0.0 is not -0.0."""
    return (a.dtype, a.shape) == (b.dtype, b.shape) and torch.equal(_bytes(a), _bytes(b))


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().flatten().view(torch.uint8)


def _rows(file: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in row.items() if name not in TIME_FIELDS} for row in rows]


def _metric_differences(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> list[str]:
    if len(a) != len(b):
        return [f"{METRICS} has {len(a)} rows in one run, {len(b)} in the other"]
    for number, (ours, theirs) in enumerate(zip(a, b, strict=True), 1):
        fields = [name for name in {**ours, **theirs} if json.dumps(ours.get(name)) != json.dumps(theirs.get(name))]
        if fields:
            return [f"{METRICS} differs first in row {number} (step {ours.get('step')}): {', '.join(fields)}"]
    return []
