"""Resolves `auto` options, and records the machine and the code version of a run."""

import copy
import math
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from importlib import metadata
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from rl_training.algorithms import Learner, Updater
from rl_training.data import ReplayBuffer
from rl_training.envs.arithmetic import usual_arithmetic
from rl_training.experiment.config.registry import get_algorithm_spec
from rl_training.experiment.config.train_config import TrainConfig
from rl_training.experiment.lanes import lane_of
from rl_training.processes import usable_cores
from rl_training.types import Batch, EnvSpec

THREADS = (1, 2, 4)
MEASURED_SIZE, MEASURED_UPDATES = 50_000, 10_000  # parameters and updates below which threads gain nothing worth
MEASURED_SECONDS, MIN_GAIN = 0.5, 1.2
PACKAGES = ("rl-training", "torch", "numpy", "gymnasium", "mujoco", "ale-py")


class Choices(NamedTuple):
    """Device, threads, compilation and overlap of a run; stored in the run and used again by resume."""

    device: str
    threads: int
    compile: bool
    overlap: bool = False


def choose(config: TrainConfig) -> Choices:
    """Resolves `auto`: CUDA if available, one thread, and compilation for long runs (see `worth_compiling`).

    `measure_threads` may choose more threads once there is a learner.
    """
    device = config.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    elif device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device {device!r} is not available: PyTorch finds no CUDA device; use cpu or auto")
    compile = config.compile == "on" or (config.compile == "auto" and worth_compiling(config, device))
    return Choices(device, config.threads or 1, compile, _overlaps(config, device))


def _overlaps(config: TrainConfig, device: str) -> bool:
    """Whether updates run while the environments step: `auto` means on a GPU, where this costs nothing."""
    possible = lane_of(config).can_overlap and config.env_backend != "device"
    if config.overlap_updates == "on" and not possible:
        raise ValueError(
            f"overlap_updates: {config.algo} in {config.env_backend} environments cannot update while they step; "
            "remove it"
        )
    return possible and (config.overlap_updates == "on" or (config.overlap_updates == "auto" and device != "cpu"))


def measure_threads(config: TrainConfig, learner: Learner, spec: EnvSpec) -> int:
    """Times updates of a copy of the learner with one and more threads; returns the number to train with.

    It is 1 without measuring if the network is small, the run is short, or OMP_NUM_THREADS limits the threads, as it
    does for runs that train side by side.
    """
    updates = lane_of(config).count_updates(learner.config, config.duration, config.num_envs)
    size = sum(parameter.numel() for parameter in learner.parameters())
    on_cpu = next(learner.parameters()).device.type == "cpu"
    is_simple = on_cpu and learner.is_traceable and learner.lane in ("offline", "replay")
    if not is_simple or size < MEASURED_SIZE or updates < MEASURED_UPDATES or "OMP_NUM_THREADS" in os.environ:
        return 1
    with torch.random.fork_rng(devices=[]):
        updater, batch = Updater([copy.deepcopy(learner)]), _any_batch(learner, spec)
        return fastest_threads(lambda: updater.update(batch), usable_cores())


def fastest_threads(update: Callable[[], Any], usable: int, clock: Callable[[], float] = time.perf_counter) -> int:
    """Returns 1, 2 or 4: the most threads of which each doubling makes an update 1.2 times as fast or more."""
    counts = [count for count in THREADS if count <= usable]
    best, deadline = dict.fromkeys(counts, math.inf), clock() + MEASURED_SECONDS
    while len(counts) > 1 and clock() < deadline:  # in turn, so that a busy machine slows all of them
        for count in counts:
            torch.set_num_threads(count)
            update()  # starts the threads
            began = clock()
            update()
            best[count] = min(best[count], clock() - began)
    torch.set_num_threads(1)
    steps = takewhile(lambda pair: best[pair[0]] >= MIN_GAIN * best[pair[1]], pairwise(counts))
    return max((more for _, more in steps), default=1)


def _any_batch(learner: Learner, spec: EnvSpec) -> Batch:
    layout, rows = ReplayBuffer.layout(spec), learner.config.batch_size
    batch = {name: torch.rand(rows, *shape).to(dtype) for name, (shape, dtype) in layout.items()}
    return batch | {each.name: torch.rand(rows, *each.layout(batch)[0]) for each in learner.needs}


def apply(choices: Choices) -> None:
    """Sets PyTorch's threads, flushes denormal numbers to zero; on CUDA, TF32 products, deterministic convolutions."""
    torch.set_num_threads(choices.threads)
    # Averages of zero gradients shrink to denormal numbers, with which many CPUs calculate a hundred times slower.
    for dtype in (np.float16, np.float32, np.float64):
        np.finfo(dtype)  # NumPy warns if it looks for the smallest denormal number later
    torch.set_flush_denormal(True)
    usual_arithmetic.flush = torch.set_flush_denormal
    if choices.device.startswith("cuda"):
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.deterministic = True  # else a resumed run would differ in its last bits


def worth_compiling(config: TrainConfig, device: str) -> bool:
    """Whether the run has enough updates for its lane and device to earn back the time of compiling."""
    lane, options = lane_of(config), get_algorithm_spec(config.algo).config_type(**config.algo_kwargs)
    threshold = lane.compile_after.get(device.partition(":")[0])
    steps = config.total_timesteps + config.online_steps * config.updates_per_step
    compiler = shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++") or shutil.which("clang++")
    if threshold is None or compiler is None:
        return False
    return lane.count_updates(options, steps, config.num_envs) >= threshold


def versions() -> dict[str, str]:
    return dict(_versions())


@cache
def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def facts() -> dict[str, Any]:
    """Returns the versions, commit, command line and hardware of this process."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    hardware = {"platform": platform.platform(), "cores": os.cpu_count(), "gpu": gpu}
    return {"versions": versions(), "git": _git_commit(), "argv": sys.argv, "hardware": hardware}


@cache
def _git_commit() -> str | None:
    """Returns the commit of this package's checkout, marked if it has changes; None outside a checkout.

    It is looked up once: this process runs the code that it has imported.
    """
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        described = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return described.stdout.strip() or None


def differences(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Returns one reason for each changed fact that may change the results of a resumed run."""
    before, after = (
        {name: facts[name] for name in ("device", "threads") if name in facts} | facts.get("versions", {})
        for facts in (then, now)
    )
    return [f"{name} was {old}, is {after.get(name)}" for name, old in before.items() if after.get(name) != old]
