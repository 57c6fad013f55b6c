"""A training that is asked to stop saves, says so, and can go on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LONG = ["train", "bc", "Pendulum-v1", "--dataset", "{kind: random, rows: 200}", "--steps", "1000000",
        "--set", "hidden_sizes=[8]", "--set", "batch_size=8", "--set", "eval_interval=0"]  # fmt: skip


def stopped(number: signal.Signals, run: Path, *arguments: str) -> tuple[int, str, dict[str, Any]]:
    """Exit code, first line and result of a training that got the signal once it had begun."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rl_training.cli", *LONG, "--output", str(run), "--json", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        introduction = process.stderr.readline().strip()  # said as training starts
        process.send_signal(number)
        told, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, introduction, json.loads(told)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_in_a_checkpoint_and_its_own_exit_code(tmp_path, number, code):
    returned, _, told = stopped(number, tmp_path / "run")
    assert returned == code
    assert (told["status"], told["stop_reason"]) == ("stopped", f"asked to stop by {number.name}")
    assert Path(told["checkpoint"], "manifest.json").exists()


def test_the_same_command_goes_on_where_the_signal_came(tmp_path):
    _, _, first = stopped(signal.SIGTERM, tmp_path / "run")
    _, introduction, _ = stopped(signal.SIGTERM, tmp_path / "run")
    assert introduction.endswith(f"1,000,000 updates, on from {first['steps']:,}")


def test_a_signal_ends_the_seeds_that_would_follow(tmp_path):
    returned, _, told = stopped(signal.SIGTERM, tmp_path / "all", "--seeds", "0-4")
    assert (returned, told["status"]) == (143, "stopped")
    assert [run["seed"] for run in told["runs"]] == [0]
