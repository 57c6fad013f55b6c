"""The commit, hardware and versions stored with every result."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from rl_training.experiment.machine import facts


def provenance() -> dict[str, Any]:
    machine_facts = facts()
    machine = ", ".join(filter(None, [hardware(), machine_facts["hardware"]["gpu"]]))
    return {"commit": known_commit(machine_facts["git"]), "hardware": machine, "versions": machine_facts["versions"]}


def known_commit(commit: str | None) -> str:
    """$COMMIT for a copy of the code without its git history, else the commit that git reports."""
    return os.environ.get("COMMIT") or commit or "unknown"


def hardware() -> str:
    return f"{cpu_name()}, {os.cpu_count()} cores"


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")  # Linux only; other systems use Python's `platform`
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
