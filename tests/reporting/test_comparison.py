"""Comparison of benchmark results, with scores small enough to check by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.reporting.comparison import Curve, compare, learning_curves, markdown
from rl_training.reporting.comparison_plots import profile_band
from rl_training.statistics import bootstrap_interval, improvement_interval, seeds_needed


def write_bench(directory: Path, cells: dict[tuple[str, str], list[float]]) -> Path:
    algos, envs = ({key[place]: None for key in cells} for place in (0, 1))
    directory.mkdir()
    (directory / "bench.yaml").write_text(json.dumps({"algos": list(algos), "envs": list(envs)}))
    for (algo, env), scores in cells.items():
        folder = directory / f"{algo}-{env}"
        folder.mkdir()
        (folder / "result.json").write_text(json.dumps(result(algo, env, scores)))
    return directory


def result(algo: str, env: str, scores: list[float]) -> dict[str, Any]:
    runs = [{"seed": seed, "score": {"return_mean": score}, "curve": [[10, 0.0], [20 + seed, 0.5], [30, score]]}
            for seed, score in enumerate(scores)]  # fmt: skip
    return {"algo": algo, "env": env, "dataset": None, "runs": runs}


def test_scores_and_probabilities_by_environment(tmp_path):
    bench = write_bench(
        tmp_path / "bench",
        {("a", "X-v1"): [3, 2, 0], ("b", "X-v1"): [1, 2, 1], ("a", "Hopper-v5"): [1607.0138475] * 4},
    )
    found = compare(bench)
    x, hopper = found.tasks
    assert [entry.algo for entry in x.entries] == ["a", "b"]
    assert [entry.middle for entry in x.entries] == pytest.approx([5 / 3, 4 / 3])
    (pair,) = x.pairs
    # 3 beats all three, 2 beats both ones and ties with 2, 0 beats none: (3 + 2.5) / 9.
    assert (pair.a, pair.b) == ("a", "b")
    assert pair.probability == pytest.approx(5.5 / 9)
    assert pair.difference == pytest.approx(1 / 3)
    # The sums of squares are 14/3 and 2/3, so the variance is 16/3 / 4 = 4/3 and n = 2 * 2.8^2 * (4/3) * 9 = 188.16.
    assert pair.seeds_needed == 189
    assert found.missing == ["b-Hopper-v5"]
    # Half way from a random policy's -20.27 to the expert's 3234.3.
    assert hopper.entries[0].normalized == pytest.approx(50, abs=1e-4)
    assert hopper.entries[0].normalized_interval == pytest.approx((50, 50), abs=1e-4)


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ({"a": [1_000, 1_000], "b": [1_099, 1_099]}, None),
        ({"a": [1_000, 1_000], "b": [1_100, 1_100]}, "a 1,000, b 1,100"),
        ({"a": [2_048, 2_048], "b": [1_000, 1_000]}, "a 2,048, b 1,000"),
        ({"a": [2_048, 12_288, 2_048]}, "a 2,048 to 12,288"),  # seeds of one setting
        ({"a": [2_048, 12_288], "b": [12_288, 12_288]}, "a 2,048 to 12,288, b 12,288"),
        ({"a": [None, 12_288], "b": [12_288, None]}, None),  # an earlier version did not store them
    ],
)
def test_runs_of_unequal_lengths_are_reported(tmp_path, steps, found):
    bench = write_bench(tmp_path / "bench", {(algo, "X-v1"): [1.0] * len(counts) for algo, counts in steps.items()})
    for algo, counts in steps.items():
        stored = result(algo, "X-v1", [1.0] * len(counts))
        for run, count in zip(stored["runs"], counts, strict=True):
            run["steps"] = count
        (bench / f"{algo}-X-v1" / "result.json").write_text(json.dumps(stored))
    assert compare(bench).notes == ([f"X-v1: the runs took unequal steps ({found})"] if found else [])


def test_the_tables_as_markdown(tmp_path):
    bench = write_bench(tmp_path / "bench", {("a", "X-v1"): [1000.0, 1000.0], ("b", "X-v1"): [10.0, 10.0]})
    assert markdown(compare(bench)) == (
        "| environment | algorithm | seeds | score [95%] |\n"
        "| --- | --- | --- | --- |\n"
        "| X-v1 | a | 2 | 1,000.0 [1,000.0, 1,000.0] |\n"
        "| X-v1 | b | 2 | 10.0 [10.0, 10.0] |\n"
        "\n"
        "| environment | comparison | P(improvement) [95%] | difference of means | seeds needed |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| X-v1 | a over b | 1.00 [1.00, 1.00] | +990.0 | about 2 each |\n"
    )


def test_a_very_large_number_of_seeds_is_not_printed(tmp_path):
    bench = write_bench(tmp_path / "bench", {("a", "X-v1"): [0.0, 100.0], ("b", "X-v1"): [0.0, 99.0]})
    assert markdown(compare(bench)).endswith(" | +0.5 | more than 1,000 seeds would be needed |\n")


def test_one_seed_has_no_interval(tmp_path):
    found = compare(write_bench(tmp_path / "bench", {("a", "Hopper-v5"): [1607.0138475], ("b", "Hopper-v5"): [10.0]}))
    assert markdown(found) == (
        "| environment | algorithm | seeds | score | normalized |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| Hopper-v5 | a | 1 | 1,607.0 | 50.0 |\n"
        "| Hopper-v5 | b | 1 | 10.0 | 0.9 |\n"
        "\n"
        "| environment | comparison | P(improvement) | difference of means |\n"
        "| --- | --- | --- | --- |\n"
        "| Hopper-v5 | a over b | 1.00 | +1,597.0 |\n"
    )
    (task,) = found.to_json()["tasks"]
    assert [row["interval_95"] for row in (*task["algorithms"], *task["pairs"])] == [None] * 3
    assert task["algorithms"][0]["normalized_interval_95"] is None


def test_small_returns_have_significant_digits(tmp_path):
    cells = {("ppo", "a"): [0.0004, 0.0002], ("dqn", "a"): [0.0001, 0.0], ("ppo", "b"): [500.0, 499.0]}
    table = markdown(compare(write_bench(tmp_path / "bench", cells)))
    for shown in ("0.0003 [0.0002, 0.0004]", "5e-05 [0, 0.0001]", "+0.00025", "499.5 [499.0, 500.0]"):
        assert shown in table


def test_a_seed_beside_many_leaves_the_pair_without_an_interval(tmp_path):
    found = compare(write_bench(tmp_path / "bench", {("a", "X-v1"): [1.0], ("b", "X-v1"): [2.0, 3.0]}))
    (task,) = found.tasks
    assert [entry.interval for entry in task.entries] == [None, (2.0, 3.0)]
    assert task.pairs[0].interval is None


def test_a_bench_without_results_is_refused(tmp_path):
    (tmp_path / "bench.yaml").write_text("algos: [a]\nenvs: [X-v1]\n")
    with pytest.raises(ValueError, match=r"no cell of .* is done yet"):
        compare(tmp_path)


def test_curves_are_taken_where_every_seed_was_evaluated(tmp_path):
    found = compare(write_bench(tmp_path / "bench", {("a", "X-v1"): [7, 9]}))
    # Seed 0 was evaluated at 10, 20 and 30, seed 1 at 10, 21 and 30.
    assert learning_curves(found) == {"X-v1": {"a": Curve([10, 30], [[0, 7], [0, 9]])}}


def test_seeds_needed_goes_by_the_pooled_deviation():
    # Both have variance 2 (n - 1 = 1), the means differ by 2: 2 * 2.8^2 * 2 / 4 = 7.84.
    assert seeds_needed([1, 3], [3, 5]) == 8
    assert seeds_needed([1, 3], [2, 2]) is None  # no difference
    assert seeds_needed([1], [3, 5]) is None  # no deviation


def test_the_interval_of_an_improvement_has_the_quantiles_of_redrawn_pairs():
    # Of 0 and 2 against 1: the share of twos among two draws, so 0, 1/2 and 1 with 1/4, 1/2 and 1/4.
    assert improvement_interval([0, 2], [1]) == (0.0, 1.0)
    assert improvement_interval([0, 2], [1], confidence=0.4) == (0.5, 0.5)  # from the 30 % to the 70 % quantile
    assert improvement_interval([1], [0, 2]) == (0.0, 1.0)  # the seeds of the second are redrawn too


def test_ties_count_half_in_the_interval_of_an_improvement():
    assert improvement_interval([1, 1], [1, 1]) == (0.5, 0.5)


def test_the_band_of_a_profile_holds_the_middle_95_percent_of_redrawn_runs():
    # Three draws from two runs above the level and one below: none above with probability 1/27, which is over 2.5 %.
    assert profile_band([0, 1, 1], [0.5]) == ([0.0], [1.0])
    assert profile_band([0, 0, 1], [0.5]) == ([0.0], [1.0])


def test_the_bootstrap_agrees_with_scipys():
    stats = pytest.importorskip("scipy.stats")
    scores = np.random.default_rng(0).normal(-150, 20, size=10)

    def trimmed(x, axis):
        return stats.trim_mean(x, 0.25, axis=axis)

    expected = stats.bootstrap((scores,), trimmed, n_resamples=10_000, method="percentile", rng=1).confidence_interval
    # Two draws of 10,000 resamples: the ends are known to a few hundredths of the interval, which is about 30 wide.
    assert bootstrap_interval(scores) == pytest.approx((expected.low, expected.high), abs=1.0)


def test_the_bootstrap_of_an_improvement_agrees_with_scipys():
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(0)
    a, b = rng.normal(1, 1, size=8), rng.normal(0, 1, size=6)

    def probability(x, y, axis):
        return (x[..., :, None] > y[..., None, :]).mean((-2, -1))

    expected = stats.bootstrap((a, b), probability, n_resamples=10_000, method="percentile", rng=1).confidence_interval
    assert improvement_interval(a, b) == pytest.approx((expected.low, expected.high), abs=0.03)
