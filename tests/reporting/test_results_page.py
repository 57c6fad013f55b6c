"""The results page matches the stored results, and a single seed has no interval."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
pytestmark = pytest.mark.skipif(
    not (BENCHMARKS / "results").is_dir(), reason="no folder benchmarks/results, as in an archive of the source"
)


def test_the_page_of_results_is_what_its_script_writes(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    script = runpy.run_path(str(BENCHMARKS / "results_table.py"))
    assert script["whole_page"](script["stored_benches"]()) == (ROOT / "docs" / "results.md").read_text()


def test_the_results_on_the_page_of_performance_are_what_its_script_writes(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    script = runpy.run_path(str(BENCHMARKS / "performance_page.py"))
    page = (ROOT / "docs" / "performance.md").read_text()
    assert script["whole_page"](page) == page


@pytest.mark.parametrize(
    ("scores", "result", "interval"),
    [([-150.0], "-150.0", None), ([-150.0, -150.0], "-150.0 [-150.0, -150.0]", [-150.0, -150.0])],
)
def test_a_cell_of_one_seed_has_no_interval(monkeypatch, scores, result, interval):
    monkeypatch.syspath_prepend(BENCHMARKS)
    script = runpy.run_path(str(BENCHMARKS / "figures.py"))
    runs = [{"seed": seed, "score": score, "commit": None} for seed, score in enumerate(scores)]
    summary = script["summary"](script["CELLS"]["sac_pendulum"], runs, data=None)
    assert (summary["result"], summary["interval_95"]) == (result, interval)
