"""What `auto` chooses, and the facts about machine and code that a run records."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rl_training.experiment.config.registry import get_algorithm_spec
from rl_training.experiment.config.train_config import TrainConfig

COMPILE_FROM = {"offline": 50_000, "replay": 50_000, "sequence": 10_000}  # updates, by lane
PACKAGES = ("rl-training", "torch", "numpy", "gymnasium", "mujoco", "ale-py")


class Choices(NamedTuple):
    """What a run computes with; stored in it and used again by resume."""

    device: str
    threads: int
    compile: bool


def choose(config: TrainConfig) -> Choices:
    """The fixed rule behind `auto`: CUDA where there is one; one thread, since these networks are small; compiled
    where so many updates will follow that compiling, half a minute or two for a world model, is earned back."""
    device = config.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    elif device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device {device!r} was asked for, but torch sees no CUDA device here; use cpu or auto")
    compile = config.compile == "on" or (config.compile == "auto" and worth_compiling(config, device))
    return Choices(device, config.threads or 1, compile)


def apply(choices: Choices) -> None:
    """Make torch compute as chosen; on CUDA, matrix products in TF32."""
    torch.set_num_threads(choices.threads)
    if choices.device.startswith("cuda"):
        torch.set_float32_matmul_precision("high")


def worth_compiling(config: TrainConfig, device: str) -> bool:
    """Rollout lanes stay eager: their batches are small, and acting takes most of their time. So do world models on a
    CPU, where the many small operations of their loops cost little."""
    algorithm = get_algorithm_spec(config.algo)
    if algorithm.lane not in COMPILE_FROM or (algorithm.lane == "sequence" and not device.startswith("cuda")):
        return False
    options: Any = algorithm.config_type(**config.algo_kwargs)
    updates = config.total_timesteps + config.online_steps * config.updates_per_step
    if algorithm.lane == "replay":
        updates = updates // (config.num_envs * options.collect_steps) * options.updates_per_collect
    elif algorithm.lane == "sequence":
        updates = int(updates * options.train_ratio / (options.batch_size * options.window))
    compiler = shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++") or shutil.which("clang++")
    return updates >= COMPILE_FROM[algorithm.lane] and compiler is not None


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
