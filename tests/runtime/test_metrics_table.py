"""Reading metrics.jsonl while a run may be writing it."""

from rl_training.runtime.metrics_table import logged_rows, read_metrics


def test_only_whole_lines_of_a_log_are_read(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert logged_rows(tmp_path) == [{"step": 1}, {"step": 2}]
    assert logged_rows(tmp_path, last_bytes=18) == [{"step": 2}]  # the first line is cut
    assert read_metrics(tmp_path, table="list") == [{"step": 1}, {"step": 2}]


def test_a_run_without_a_log_has_no_rows(tmp_path):
    assert logged_rows(tmp_path) == []
