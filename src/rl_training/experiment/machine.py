"""Resolves `auto` options, and records the machine and the code version of a run."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from rl_training.envs.pools.arithmetic import usual_arithmetic
from rl_training.experiment.config.train_config import TrainConfig
from rl_training.experiment.lanes import lane_of
from rl_training.platforms import keep_freed_memory

PACKAGES = ("rl-training", "torch", "numpy", "gymnasium", "mujoco", "ale-py")


class Choices(NamedTuple):
    """Device, threads, compilation and overlap of a run; stored in the run and used again by resume."""

    device: str
    threads: int
    compile: bool
    overlap: bool = False


def device_of(name: str) -> str:
    """Resolves `auto`; raises ValueError for a device that PyTorch does not have here."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if str(name).startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device {name!r} is not available: PyTorch finds no CUDA device; use cpu or auto")
    try:
        return str(torch.device(name))
    except (RuntimeError, TypeError):
        raise ValueError(f"device must be auto, cpu, cuda or cuda:N, got {name!r}") from None


def choose(config: TrainConfig) -> Choices:
    """Resolves `auto`: CUDA if available, one thread, and compilation only where its gain is not measured.

    `timing.choosing` measures threads and compilation once there is a learner.
    """
    device = device_of(config.device)
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


def apply(choices: Choices) -> None:
    """Sets PyTorch's threads and flushes denormal numbers; on CUDA, also sets TF32 and deterministic convolutions."""
    torch.set_num_threads(choices.threads)
    keep_freed_memory()
    # Averages of zero gradients become denormal numbers, with which many CPUs compute a hundred times slower.
    for dtype in (np.float16, np.float32, np.float64):
        np.finfo(dtype)  # NumPy warns if it looks for the smallest denormal number later
    torch.set_flush_denormal(True)
    usual_arithmetic.flush = torch.set_flush_denormal
    if choices.device.startswith("cuda"):
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.deterministic = True  # else a resumed run would differ in its last bits


@contextmanager
def kept_torch_settings() -> Iterator[None]:
    """Restores PyTorch's number of threads and the states of its default generators afterwards."""
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    on_gpu = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(state)
        if on_gpu:
            torch.cuda.set_rng_state_all(on_gpu)


@contextmanager
def using_threads(count: int | None) -> Iterator[None]:
    """Lets PyTorch use this number of threads inside the block; None: as many as before."""
    before = torch.get_num_threads()
    if count is None or count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def worth_compiling(config: TrainConfig, device: str) -> bool:
    """Whether a run whose updates cannot be timed beforehand has enough of them to earn back the time of compiling."""
    threshold = lane_of(config).compile_after.get(device.partition(":")[0])
    return threshold is not None and has_compiler() and count_updates(config) >= threshold


def has_compiler() -> bool:
    names = (os.environ.get("CXX", "c++"), "g++", "clang++")
    return any(shutil.which(name) is not None for name in names)


def count_updates(config: TrainConfig) -> int:
    """Returns the number of updates in the whole run."""
    steps = config.total_timesteps + config.online_steps * config.updates_per_step
    count = lane_of(config).count_updates(config.options(), steps, config.num_envs)
    return count if config.max_updates is None else min(count, config.max_updates)


@cache
def versions() -> dict[str, str]:
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
    hardware = {"platform": platform.platform(), "cpu": _cpu_name(), "cores": os.cpu_count(), "gpu": gpu}
    return {"versions": versions(), "git": _git_commit(), "argv": sys.argv, "hardware": hardware}


@cache
def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")  # Linux only; other systems use Python's `platform`
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


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
