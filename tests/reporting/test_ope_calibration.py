"""The calibration of off-policy estimates plays checkpoints in parallel, with the results of one process."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from rl_training import BC

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="no folder benchmarks, as in an archive of the source")


def test_played_returns_do_not_depend_on_the_number_of_processes(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    script = importlib.import_module("ope_calibration")
    options: dict[str, Any] = {"dataset": {"kind": "random", "rows": 200}, "eval_interval": 0, "hidden_sizes": (8,)}
    checkpoints = [
        BC("CartPole-v1", total_timesteps=steps, output_dir=str(tmp_path / f"{steps}"), **options).learn().agent.path
        for steps in (1, 9)
    ]
    jobs = [("cartpole", str(number), path) for number, path in enumerate(checkpoints)]
    alone = dict(script.played_returns(*job) for job in jobs)
    assert dict(script.in_processes(script.played_returns, jobs, 2)) == alone
    assert alone["0"] != alone["1"]
