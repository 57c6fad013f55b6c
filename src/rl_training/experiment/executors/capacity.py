"""Computes how many jobs fit on this machine at a time: by its cores, its memory and its GPUs."""

import os
from collections.abc import Sequence
from math import ceil
from pathlib import Path

from rl_training.control_groups import MEMORY_FILES, limiting_groups, numbers_in
from rl_training.experiment.config.messages import ConfigError
from rl_training.experiment.executors.base import ExecutorOptions
from rl_training.experiment.executors.devices import Device, choose_devices
from rl_training.processes import usable_cores


def jobs_at_a_time(options: ExecutorOptions, *, on_gpus: int) -> int:
    """The lowest of all limits: `--jobs`, `--cpus`, `--memory`, and `on_gpus`, or one job per core without GPUs."""
    limits = [limit for limit in (options.jobs, on_gpus) if limit] or [cores()]
    if options.cpus is not None:
        if options.cpus > cores():
            raise ConfigError(f"--cpus {options.cpus} is more than the cores of this machine, {cores()}; give fewer")
        limits.append(cores() // options.cpus)
    if options.memory is not None:
        if options.memory > ram():
            raise ConfigError(f"--memory {gib(options.memory)} is more than this machine has, {gib(ram())}; give less")
        limits.append(ram() // options.memory)
    return min(limits)


def slots_of_devices(options: ExecutorOptions) -> dict[str, int]:
    """The jobs at a time on each GPU; empty if jobs are not assigned to GPUs.

    They are if an option asks for it, or if there are several GPUs.
    """
    asked = options.devices or options.slots or options.gpu_memory
    if not asked and not options.placed:
        return {}
    devices = choose_devices(options.devices)
    if not devices and asked:
        option = "--slots" if options.slots else "--gpu-memory"
        raise ConfigError(f"{option} needs a GPU, and PyTorch finds none on this machine; limit jobs with --jobs")
    if not asked and len(devices) < 2:
        return {}
    slots = {device.name: _slots(options, device, devices) for device in devices}
    full = [device for device in devices if not slots[device.name]]
    if full and (options.devices or len(full) == len(devices)):
        has = gib(full[0].memory or 0)
        raise ConfigError(
            f"--gpu-memory {gib(options.gpu_memory or 0)} is more than GPU {full[0].name} has, {has}; give less"
        )
    return {name: number for name, number in slots.items() if number}


def _slots(options: ExecutorOptions, device: Device, devices: Sequence[Device]) -> int:
    if options.gpu_memory is not None:
        if device.memory is None:
            raise ConfigError(f"--gpu-memory: the memory of GPU {device.name} is unknown; use --slots")
        fitting = device.memory // options.gpu_memory
        return fitting if options.slots is None else min(fitting, options.slots)
    if options.slots is None and options.jobs is not None and not options.devices:
        return ceil(options.jobs / len(devices))  # --jobs alone: as many as before, on all GPUs
    return options.slots or 1


def cores() -> int:
    """The cores that this process may use: its affinity, and the quota of its container."""
    quotas = [_cpu_quota(version, group) for version, group in limiting_groups("cpu")]
    return min([usable_cores(), *(max(quota // period, 1) for quota, period in filter(None, quotas))])


def _cpu_quota(version: int, group: Path) -> list[int]:
    """Microseconds of CPU time in a period, and the period; none without a limit."""
    files = ("cpu.max",) if version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    numbers = [number for file in files for number in numbers_in(group / file)]
    return numbers if len(numbers) == 2 else []


def ram() -> int:
    """The memory of this machine or the limit of its container, in bytes."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [numbers_in(group / MEMORY_FILES[version][0]) for version, group in limiting_groups("memory")]
    return min([total, *(limit for each in limits for limit in each)])


def gib(size: int) -> str:
    return f"{round(size / 2**30, 1):,g} GiB"
