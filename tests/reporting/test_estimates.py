"""Off-policy estimates in comparisons and reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rl_training.reporting.comparison import behaviour_lines, compare, pair_table, score_table
from rl_training.reporting.report.data import estimates
from rl_training.reporting.report.gathering import gather
from rl_training.reporting.report.scores import scored_tasks
from rl_training.reporting.report.summary import pair_rows, summary_rows
from rl_training.reporting.tasks import estimate_interval, task_name
from rl_training.statistics import Interval


def estimate(value: float, low: float, high: float) -> dict[str, object]:
    return {"estimate": value, "interval": [low, high], "warnings": ["few episodes"], "dataset": "data/test.npz",
            "behaviour_return": 1.0}  # fmt: skip


SCORES = {
    "bc": [estimate(10, 8, 12), estimate(12, 10, 14)],
    "iql": [estimate(30, 28, 32), estimate(31, 29, 33)],
    "cql": [estimate(31, 29, 33), estimate(32, 30, 34)],
}


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """A bench whose run directories were deleted."""
    for algo, scores in SCORES.items():
        (tmp_path / f"{algo}-train").mkdir()
        runs = [{"seed": seed, "score": score, "curve": []} for seed, score in enumerate(scores)]
        result = {"algo": algo, "env": None, "dataset": "data/train.npz", "score": "ope", "test": "data/test.npz",
                  "runs": runs}  # fmt: skip
        (tmp_path / f"{algo}-train" / "result.json").write_text(json.dumps(result))
    plan = "algos: [bc, iql, cql]\ndatasets: [data/train.npz]\nscore: ope\ntest: data/test.npz\nseeds: [0, 1]\n"
    (tmp_path / "bench.yaml").write_text(plan)
    return tmp_path


def test_the_interval_of_seeds_is_that_of_the_data_or_wider():
    assert estimate_interval([estimate(1, 0, 3)]) == Interval(0, 3)
    assert estimate_interval([estimate(1, -9, 11), estimate(3, -7, 13)]) == Interval(-8, 12)
    assert estimate_interval([estimate(1, 0.9, 1.1), estimate(3, 2.9, 3.1)]) == Interval(1, 3)  # the seeds differ more


@pytest.mark.parametrize(
    ("env", "dataset", "test", "name"),
    [
        ("A-v1", None, None, "A-v1"),
        ("A-v1", "d/x.npz", None, "A-v1 from x"),
        (None, "d/x.npz", None, "x"),
        (None, "d/x.npz", "d/y.npz", "x, estimated on y"),
        (None, "a/train.npz", "a/test.npz", "a/train, estimated on a/test"),
        ("A-v1", None, "d/y.npz", "A-v1, estimated on y"),
        (None, None, None, "data"),
    ],
)
def test_a_task_is_named_by_environment_data_and_test_data(env, dataset, test, name):
    assert task_name(env, dataset, test, {}) == name


def test_estimates_are_listed_best_first_with_their_warnings(bench):
    found = compare(bench)
    columns, rows = score_table(found)
    assert columns == ("environment", "algorithm", "seeds", "estimate [95%]", "warnings")
    assert rows[0] == ("data/train, estimated on data/test", "cql", "2", "31.5 [29.5, 33.5]", "1")
    assert [row[1] for row in rows] == ["cql", "iql", "bc"]
    assert found.notes == ["scores are off-policy estimates from data/test.npz, not returns of played episodes"]


def test_pairs_are_separated_by_their_intervals(bench):
    found = compare(bench)
    columns, rows = pair_table(found)
    assert columns == ("environment", "comparison", "difference of means", "by the data")
    assert {row[1]: row[3] for row in rows} == {
        "bc over iql": "separated",
        "bc over cql": "separated",
        "iql over cql": "the data cannot separate them: intervals overlap",
    }
    pairs = found.to_json()["tasks"][0]["pairs"]
    assert [pair["intervals_overlap"] for pair in pairs] == [False, False, True]


def test_played_scores_have_no_intervals_of_data(bench):
    for file in bench.glob("*/result.json"):
        result = json.loads(file.read_text())
        result |= {"env": "A-v1", "test": None, "score": "episodes"}
        result["runs"] = [{**run, "score": {"return_mean": run["score"]["estimate"]}} for run in result["runs"]]
        file.write_text(json.dumps(result))
    found = compare(bench)
    assert score_table(found).columns == ("environment", "algorithm", "seeds", "score [95%]")
    assert (found.notes, found.tasks[0].name) == ([], "A-v1 from data/train")
    assert {pair["intervals_overlap"] for pair in found.to_json()["tasks"][0]["pairs"]} == {None}


def test_the_report_shows_the_interval_of_the_data_and_marks_estimates(bench):
    gathered = gather([str(bench)])
    (task,) = tasks = scored_tasks(gathered)
    rows = summary_rows(task)
    assert (rows[0].label, rows[0].interval) == ("bc", "9.00 to 13.00")
    assert rows[0].notes == [
        "off-policy estimates from data/test.npz, not returns of played episodes",
        "warning: few episodes",
    ]
    clear = {(pair.a, pair.b): (pair.probability, pair.is_clear) for pair in pair_rows(tasks)}
    assert clear[("iql", "cql")] == ("", False)
    assert clear[("bc", "iql")] == ("", True)
    first = estimates(gathered).rows[0]
    assert (first.dataset, first.estimate) == ("data/test.npz", "10.00")


def test_the_report_finds_runs_in_a_ranking_stored_beside_them(tmp_path):
    runs = []
    for seed, value in enumerate((2, 3)):
        run = tmp_path / f"seed_{seed}"
        run.mkdir()
        (run / "config.yaml").write_text(f"algo: bc\ndataset: data/train.npz\nseed: {seed}\n")
        (run / "metrics.jsonl").write_text("")
        runs.append({"run_dir": str(run), **estimate(value, value - 1, value + 1)})
    ranking = {"dataset": "data/test.npz", "behaviour_return": 1.0, "gamma": 0.9, "runs": runs[::-1]}
    (tmp_path / "ope_test.json").write_text(json.dumps(ranking))
    rows = estimates(gather([str(tmp_path)])).rows
    assert [(Path(row.run).name, row.estimate, row.gamma) for row in rows] == [
        ("seed_0", "2.00", "0.9"),
        ("seed_1", "3.00", "0.9"),
    ]


def test_estimates_with_different_discounts_are_reported(bench):
    file = bench / "bc-train" / "result.json"
    result = json.loads(file.read_text())
    for run in result["runs"]:
        run["score"]["behaviour_return"] = 9.0  # of the same test data with another discount
    file.write_text(json.dumps(result))
    found = compare(bench)
    note = (
        "data/train, estimated on data/test: the estimates have different discounts or test data, so they cannot be "
        "compared (return of the test data: bc 9.0; iql, cql 1.0); use the same --gamma and --test"
    )
    assert note in found.notes
    assert note in gather([str(bench)]).notes
    assert [line.partition(" ")[0] for line in behaviour_lines(found)] == ["9.0", "1.0"]
