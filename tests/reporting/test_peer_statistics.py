"""Comparisons with peers report every seed, the mean and the interquartile mean, beside the budget."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="no folder benchmarks, as in an archive of the source")


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return runpy.run_path(str(BENCHMARKS / "peers.py"))


def pairs(ours, theirs):
    versions = {"torch": "2"}
    return [
        {"ours": {"score": a, "seconds": 10.0}, "theirs": {"score": b, "seconds": 20.0, "versions": versions}}
        for a, b in zip(ours, theirs, strict=True)
    ]


def test_a_failed_seed_shows_in_the_mean_and_among_the_seeds(script):
    found = script["summary"](script["MATCHES"]["dqn_cartpole"], pairs([500] * 5, [500] * 4 + [110]), range(5))
    assert found["interquartile_mean"] == {"ours": 500.0, "theirs": 500.0}
    assert found["mean"] == {"ours": 500.0, "theirs": 422.0}
    assert "mean 500.0 against 422.0" in found["result"]
    assert "seeds 500, 500, 500, 500, 500 against 500, 500, 500, 500, 110" in found["result"]
    assert "2.00 [2.00, 2.00] times as fast" in found["result"]


def test_a_result_names_its_budget(script):
    for match in script["MATCHES"].values():
        found = script["summary"](match, pairs([1.0, 2.0], [1.0, 2.0]), [3, 4])
        assert (found["budget"], found["seeds"]) == (match.steps, [3, 4])
        assert f"{match.steps:,} steps" in found["what"]


def test_the_difference_of_means_has_an_interval_from_two_seeds_on(script):
    low, high = script["difference_interval"]([0.0, 1.0] * 5, [0.0, 1.0] * 5)
    assert low < 0 < high
    assert script["difference_interval"]([5.0, 5.0], [3.0, 3.0]) == [2.0, 2.0]
    assert script["difference_interval"]([5.0], [3.0]) is None
