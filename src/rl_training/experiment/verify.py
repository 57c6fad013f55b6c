"""Compares two runs byte for byte."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rl_training.experiment.agent import find_checkpoint
from rl_training.runtime.callbacks.logging import TIME_FIELDS
from rl_training.runtime.checkpoints.format import STATE
from rl_training.runtime.checkpoints.reading import Checkpoint

METRICS = "metrics.jsonl"


def compare_runs(a: Path, b: Path) -> list[str]:
    """Returns one message per difference between two run directories.

    Compares the tensors of the newest checkpoints by name, state.json, and metrics.jsonl without its time fields.
    """
    left, right = find_checkpoint(a), find_checkpoint(b)
    if left.step != right.step:
        return [f"the newest checkpoint has step {left.step} in {a}, but step {right.step} in {b}"]
    differences = _tensor_differences(left, right)
    if (left.path / STATE).read_bytes() != (right.path / STATE).read_bytes():
        differences.append(f"{STATE} differs at step {left.step}")
    return differences + _metric_differences(_rows(a / METRICS), _rows(b / METRICS))


def _tensor_differences(a: Checkpoint, b: Checkpoint) -> list[str]:
    left, right = _tensors(a), _tensors(b)
    missing = [f"{name} is in only one checkpoint" for name in sorted(left.keys() ^ right.keys())]
    shared = sorted(left.keys() & right.keys())
    return missing + [f"{name} differs at step {a.step}" for name in shared if not _equal(left[name], right[name])]


def _tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    files = [file for file in checkpoint.manifest.files if file.endswith(".safetensors")]
    return {f"{file}: {name}": tensor for file in files for name, tensor in checkpoint.tensors(file).items()}


def _equal(a: Tensor, b: Tensor) -> bool:
    """Compares bytes: NaN equals NaN, and 0.0 differs from -0.0."""
    return (a.dtype, a.shape) == (b.dtype, b.shape) and torch.equal(_bytes(a), _bytes(b))


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().flatten().view(torch.uint8)


def _rows(file: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in row.items() if name not in TIME_FIELDS} for row in rows]


def _metric_differences(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> list[str]:
    if len(a) != len(b):
        return [f"{METRICS} has {len(a)} rows in one run, {len(b)} in the other"]
    for number, (left, right) in enumerate(zip(a, b, strict=True), 1):
        fields = [name for name in {**left, **right} if json.dumps(left.get(name)) != json.dumps(right.get(name))]
        if fields:
            return [f"{METRICS} differs first in row {number} (step {left.get('step')}): {', '.join(fields)}"]
    return []
