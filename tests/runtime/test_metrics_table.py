"""Reading metrics.jsonl while a run may be writing it."""

import pytest

from rl_training.runtime.metrics_table import logged_rows, read_metrics


def test_only_whole_lines_of_a_log_are_read(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert logged_rows(tmp_path) == [{"step": 1}, {"step": 2}]
    assert logged_rows(tmp_path, last_bytes=18) == [{"step": 2}]  # the first line is cut
    assert read_metrics(tmp_path, table="list") == [{"step": 1}, {"step": 2}]


def test_a_run_without_a_log_has_no_rows(tmp_path):
    assert logged_rows(tmp_path) == []


def test_seeds_and_cells_are_columns(tmp_path):
    for cell, seed in (("sac", 10), ("sac", 2), ("ppo", 0)):
        run = tmp_path / cell / f"seed_{seed}"
        run.mkdir(parents=True)
        (run / "metrics.jsonl").write_text('{"step": 1, "evaluation": {"return_mean": 3.0}}\n')
    (tmp_path / "bench.yaml").write_text("")
    row = {"step": 1, "eval_return_mean": 3.0}
    seeds = [{"seed": 2, **row}, {"seed": 10, **row}]
    assert read_metrics(tmp_path / "sac", table="list") == seeds
    cells = [{"cell": "ppo", "seed": 0, **row}, *({"cell": "sac", **each} for each in seeds)]
    assert read_metrics(tmp_path, table="list") == cells
    (tmp_path / "other").mkdir()
    with pytest.raises(FileNotFoundError, match=r"no metrics.jsonl in .*other; give a run directory"):
        read_metrics(tmp_path / "other")


def test_trials_of_a_study_are_cells(tmp_path):
    for trial in ("0000", "0001"):
        run = tmp_path / "trials" / trial / "seed_0"
        run.mkdir(parents=True)
        (run / "metrics.jsonl").write_text('{"step": 1}\n')
    (tmp_path / "final" / "base" / "seed_100").mkdir(parents=True)
    rows = [{"cell": trial, "seed": 0, "step": 1} for trial in ("0000", "0001")]
    assert read_metrics(tmp_path, table="list") == rows
