"""Refuses replay buffers that do not fit into memory. Their memory is allocated lazily, so a run would fail later."""

import os
from pathlib import Path

import torch

from rl_training.control_groups import MEMORY_FILES, limiting_groups, numbers_in, rows_of

MEMINFO = Path("/proc/meminfo")


class NotEnoughMemoryError(ValueError):
    """A replay buffer does not fit into memory."""


def require_memory(option: str, rows: int, row_bytes: int, *, filled: int, device: torch.device) -> None:
    """Raises unless `rows` transitions fit into the machine, and the `filled` ones into the memory that is free now.

    On a GPU all rows must fit into free memory, because they are allocated at once.
    """
    if device.type == "cuda":
        _require(option, rows, row_bytes, torch.cuda.mem_get_info(device)[0], f"of memory free on {device}")
        return
    total, available = host_memory()
    if total is not None:
        _require(option, rows, row_bytes, total, "of memory in this machine")
    if available is not None:
        _require(option, min(rows, filled), row_bytes, available, "of memory available")


def _require(option: str, rows: int, row_bytes: int, have: int, where: str) -> None:
    need = rows * row_bytes
    if need > have:
        raise NotEnoughMemoryError(
            f"{option}: {rows:,} transitions of {row_bytes:,} bytes need {need / 1e9:,.1f} GB, but there are "
            f"{have / 1e9:,.1f} GB {where}, enough for {have // row_bytes:,}; lower {option}"
        )


def host_memory() -> tuple[int | None, int | None]:
    """Returns the bytes of memory and swap in this machine, and those available to this process; None if unknown."""
    values = {name: int(rest.split()[0]) * 1024 for name, _, rest in (row.partition(":") for row in rows_of(MEMINFO))}
    if "MemAvailable" not in values:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None
        return physical, physical
    total = values["MemTotal"] + values.get("SwapTotal", 0)
    return total, max(min(values["MemAvailable"] + values.get("SwapFree", 0), *_group_limits(total)), 0)


def _group_limits(total: int) -> list[int]:
    """Returns `total`, and the bytes left in each control group of this process that limits memory."""
    left = [total]
    for version, group in limiting_groups("memory"):
        limit_file, used_file, cache_name = MEMORY_FILES[version]
        limit, used = numbers_in(group / limit_file), numbers_in(group / used_file)
        if limit and used:
            cache = [int(row.split()[1]) for row in rows_of(group / "memory.stat") if row.startswith(f"{cache_name} ")]
            left.append(limit[0] - used[0] + sum(cache))  # the cache of files can be dropped
    return left
