"""A training that is asked to stop saves, says so, and can go on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LONG = ["train", "bc", "Pendulum-v1", "--dataset", "{kind: random, rows: 200}", "--steps", "1000000",
        "--set", "hidden_sizes=[8]", "--set", "batch_size=8", "--set", "eval_interval=0",
        "--set", "checkpoint_interval=100", "--compile", "off"]  # fmt: skip


def stopped(number: signal.Signals, run: Path, *arguments: str) -> tuple[int, str, dict[str, Any]]:
    """Exit code, first line and result of a training that got the signal after a checkpoint."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rl_training.cli", *LONG, "--output", str(run), "--json", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        introduction = process.stderr.readline().strip()  # said as training starts
        while process.poll() is None and not list(run.glob("**/step_*")):
            time.sleep(0.01)
        process.send_signal(number)
        told, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, introduction, json.loads(told)


def test_a_signal_ends_in_a_checkpoint_and_its_own_exit_code_and_the_same_command_goes_on(tmp_path):
    returned, _, first = stopped(signal.SIGTERM, tmp_path / "run")
    assert (returned, first["status"], first["stop_reason"]) == (143, "stopped", "asked to stop by SIGTERM")
    assert Path(first["checkpoint"], "manifest.json").exists()
    returned, introduction, second = stopped(signal.SIGINT, tmp_path / "run")
    assert (returned, second["status"], second["stop_reason"]) == (130, "stopped", "asked to stop by SIGINT")
    assert introduction.endswith(f"1,000,000 updates, on from {first['steps']:,}")


def test_a_signal_stops_all_seeds_of_a_population_together(tmp_path):
    returned, _, told = stopped(signal.SIGTERM, tmp_path / "all", "--seeds", "0-4")
    assert (returned, told["status"]) == (143, "stopped")
    assert [run["seed"] for run in told["runs"]] == [0, 1, 2, 3, 4]
