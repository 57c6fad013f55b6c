"""The page of performance: tables and pictures of stored speeds, and the rates that are read from a log."""

from __future__ import annotations

import json
import runpy
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="no folder benchmarks, as in an archive of the source")
SOURCE = {"what": "W", "hardware": "H", "commit": "C", "versions": {"torch": "2"}, "commands": ["command"]}
RATIO = {"median": 2.0, "min": 1.5, "max": 2.5}
RESULTS: dict[str, dict[str, Any]] = {
    "trainings": {
        "seeds": [0, 1],
        "trainings": {
            "ppo": {
                "what": "PPO", "steps_per_second": {"rl_training": [10, 20], "sb3": [5, 10]}, "ratios": {"sb3": RATIO},
                "total_seconds": {"rl_training": [3.0, 4.0]}, "total_ratios": {"sb3": RATIO},
                "versions": {"sb3": {"stable_baselines3": "2.9"}},
            },
            "dqn": {
                "what": "DQN", "steps_per_second": {"rl_training": [8, 8], "sbx": [8, 8]}, "ratios": {"sbx": RATIO},
                "total_seconds": {"rl_training": [3.0, 4.0]}, "total_ratios": {"sbx": RATIO}, "versions": {},
            },
        },
    },
    "compiled": {
        "updates": {
            "sac": {"float32": 6.0, "float32, compiled": 5.0, "bfloat16": 6.0, "bfloat16, compiled": 3.0},
            "dqn": {"float32": 2.0, "float32, compiled": 1.6},
        },
    },
    "gpu_training": {
        "trainings": {
            "ppo": {
                "rate": 5e6, "unit": "seed-steps a second", "goal": "5,000,000", "first_row_seconds": 4.0,
                "seconds_to_475": 1.25,
            },
            "cql": {"error": "out of memory"},
        }
    },
    "growth_cpu": {"device": "cpu", "rates": {"seeds": {"1": 100.0, "16": 300.0}, "width": {"64": 10.0, "256": 5.0}}},
    "ceiling": {"limits": {"environment steps a second": {"CartPole-v1": 9e4}, "cpu": {"GFLOP/s": {"256": 20.0}}}},
    "startup": {"result": "first step 2.00 s"},
}  # fmt: skip


@pytest.fixture
def page(monkeypatch, tmp_path) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    performance_page = import_module("performance_page")
    for name, result in RESULTS.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({**SOURCE, **result}))
    monkeypatch.setattr(performance_page, "RESULTS", tmp_path)
    monkeypatch.setattr(performance_page, "DOCS", tmp_path)
    monkeypatch.setattr(performance_page, "PAGE", tmp_path / "performance.md")
    return performance_page


def test_the_page_keeps_its_text_and_gets_tables_and_pictures(page, tmp_path):
    pytest.importorskip("matplotlib")
    page.PAGE.write_text(f"before\n{page.BEGIN}old\n{page.END}after\n")
    page.write_page()
    text = page.PAGE.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| PPO | 15 | 2.00 [1.50, 2.50] |  |" in text
    assert "| DQN | 8 |  | 2.00 [1.50, 2.50] |" in text
    assert "| ppo | 5,000,000 seed-steps a second | 5,000,000 | 4.0 s | 475 points 1.2 s later |" in text
    assert "| `sac` | 6 | 5 | 6 | 3 | 2.00 |" in text
    assert "| `dqn` | 2 | 1.6 |  |  | 1.25 |" in text
    assert "| cpu, GFLOP/s: 256 | 20 |" in text
    assert "`command`, stored in `benchmarks/results/growth_cpu.json`. Machine: H. Commit C. torch 2." in text
    assert {file.name for file in (tmp_path / "pictures").iterdir()} == {"speed.png", "speed_growth_cpu.png"}
    page.write_page()
    assert page.PAGE.read_text() == text


def test_rates_leave_out_the_start(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    script = runpy.run_path(str(BENCHMARKS / "speed_cases" / "watched.py"))
    log = [(0, 0, 0.0), (10, 1, 30.0), (20, 11, 31.0), (40, 31, 32.0), (60, 51, 33.0)]
    rows = [{"step": step, "updates": updates, "time": time} for step, updates, time in log]
    assert script["after_start"](rows)["steps_per_second"] == pytest.approx(20.0)
    assert script["after_start"](rows[:3])["steps_per_second"] is None
    assert script["rates_between"](rows, 35)["updates_per_second"] == pytest.approx(20.0)
