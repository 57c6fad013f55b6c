"""What `auto` chooses, and the facts about machine and code that a run records."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rl_training.experiment.config import TrainConfig

PACKAGES = ("rl-training", "torch", "numpy", "gymnasium", "mujoco", "ale-py")


class Choices(NamedTuple):
    """What a run computes with; stored in it and used again by resume."""

    device: str
    threads: int
    compile: bool


def choose(config: TrainConfig, *, members: int = 1) -> Choices:
    """The fixed rule behind `auto`: CUDA where there is one; one thread, since these networks are small."""
    device = config.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    elif device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device {device!r} was asked for, but torch sees no CUDA device here; use cpu or auto")
    return Choices(device, config.threads or 1, config.compile == "on")


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def facts() -> dict[str, Any]:
    """Where and from what code a run was started."""
    return {
        "versions": versions(),
        "git": _git_commit(),
        "argv": sys.argv,
        "hardware": {
            "platform": platform.platform(),
            "cores": os.cpu_count(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        },
    }


def _git_commit() -> str | None:
    """The commit of the folder this package runs from, marked where it has changes; None outside a checkout."""
    here = Path(__file__).parent
    try:
        asked = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=5,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout.strip() or None


def differences(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Why numbers may differ from those of the process that wrote `then`: one reason for each changed fact."""
    reasons = [f"{name} was {then[name]}, is {now.get(name)}" for name in ("device", "threads") if name in then
               and then[name] != now.get(name)]  # fmt: skip
    before, after = then.get("versions", {}), now.get("versions", {})
    return reasons + [
        f"{name} was {old}, is {after.get(name)}" for name, old in before.items() if after.get(name) != old
    ]
