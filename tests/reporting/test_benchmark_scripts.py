"""Every benchmark script describes its options, and the docs quote commands that exist."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="no folder benchmarks, as in an archive of the source")
COMMANDS = [
    "dreams", "dreams errors", "dreams rewards", "dynamics", "environments", "equal_to_peers", "export_parity",
    "figures", "fine_tuning", "ope_calibration", "peer_corl", "peer_corl train", "peer_corl check",
    "peers", "population", "resume", "resume runs", "resume bench", "store_runs",
    "speed", "speed throughput", "speed compiled", "speed data",
    "speed dreamer", "speed engine", "speed priorities", "speed gpu", "speed trainings", "speed ceiling",
    "speed growth", "speed startup",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_help_describes_every_command(command, monkeypatch, capsys):
    script, *words = command.split()
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setattr(sys, "argv", [f"benchmarks/{script}.py", *words, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(BENCHMARKS / f"{script}.py"), run_name="__main__")
    assert ended.value.code == 0
    assert "usage:" in capsys.readouterr().out


def test_results_quote_commands_that_exist():
    quoted = set(re.findall(r"benchmarks/(\w+)\.py((?: [a-z]+\b)?)", (ROOT / "docs" / "results.md").read_text()))
    scripts = {path.stem for path in BENCHMARKS.glob("*.py")}
    assert {script for script, _ in quoted} <= scripts
    subcommands = {command for command in COMMANDS if " " in command}
    with_subcommands = {command.split()[0] for command in subcommands}
    assert {script + word for script, word in quoted if script in with_subcommands} <= subcommands
