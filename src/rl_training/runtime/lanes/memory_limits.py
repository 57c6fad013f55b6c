"""Refuses replay buffers that do not fit into memory. Their memory is allocated lazily, so a run would die later."""

import os
from pathlib import Path

import torch

GROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
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
    values = {name: int(rest.split()[0]) * 1024 for name, _, rest in (row.partition(":") for row in _rows(MEMINFO))}
    if "MemAvailable" not in values:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None
        return physical, physical
    total = values["MemTotal"] + values.get("SwapTotal", 0)
    return total, max(min(values["MemAvailable"] + values.get("SwapFree", 0), *_group_limits(total)), 0)


def _group_limits(total: int) -> list[int]:
    """Returns `total`, and the bytes left in each control group of this process that limits memory (v1 and v2)."""
    left = [total]
    for row in _rows(MEMBERSHIP):
        _, controllers, path = row.split(":", 2)
        if not controllers:
            root, names = GROUPS, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            root, names = GROUPS / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        own = root / path.lstrip("/")
        for group in (own, *(parent for parent in own.parents if parent.is_relative_to(root))):
            try:
                limit, used = (int((group / name).read_text()) for name in names[:2])
            except (OSError, ValueError):  # no limit
                continue
            cache = [int(row.split()[1]) for row in _rows(group / "memory.stat") if row.startswith(f"{names[2]} ")]
            left.append(limit - used + sum(cache))  # the cache of files can be dropped
    return left


def _rows(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
