"""The commit, hardware and versions stored with every result."""

from __future__ import annotations

import os
from typing import Any

from rl_training.experiment.machine import facts


def provenance() -> dict[str, Any]:
    recorded = facts()
    machine = recorded["hardware"]
    hardware = ", ".join(filter(None, [machine["cpu"], f"{machine['cores']} cores", machine["gpu"]]))
    return {"commit": known_commit(recorded["git"]), "hardware": hardware, "versions": recorded["versions"]}


def known_commit(commit: str | None) -> str:
    """$COMMIT for a copy of the code without its git history, else the commit that git reports."""
    return os.environ.get("COMMIT") or commit or "unknown"
