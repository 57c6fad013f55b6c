"""The page of results is what its script makes of the stored ones."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_of_results_is_what_its_script_writes():
    if not (ROOT / "benchmarks" / "results").is_dir():
        pytest.skip("no folder benchmarks/results, as in an archive of the source")
    script = runpy.run_path(str(ROOT / "benchmarks" / "results_table.py"))
    assert script["whole_page"](script["stored_benches"]()) == (ROOT / "docs" / "results.md").read_text()
