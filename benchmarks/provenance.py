"""Where a figure comes from: what every result tells beside its number."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from rl_training.experiment.machine import facts


def provenance() -> dict[str, Any]:
    """The commit, the machine and the versions that a benchmark runs with."""
    known = facts()
    machine = ", ".join(filter(None, [hardware(), known["hardware"]["gpu"]]))
    return {"commit": known_commit(known["git"]), "hardware": machine, "versions": known["versions"]}


def known_commit(commit: str | None) -> str:
    """What $COMMIT says, for a copy of the code that has not its own history around it; else what git says."""
    return os.environ.get("COMMIT") or commit or "unknown"


def hardware() -> str:
    return f"{cpu_name()}, {os.cpu_count()} cores"


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")  # Linux; elsewhere Python's own answer is as good
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
