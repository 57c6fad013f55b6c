"""Rows of a table that were recorded twice."""

import numpy as np
import pytest

from rl_training.data.datasets.checks import inspect_source

HEADER = "job,stamp,level,action,reward\n"
ROWS = [
    f"{job},2026-01-0{job}T08:0{minute}:00+01:00,{job}.{minute},{minute % 2},{minute}"
    for job in (1, 2)
    for minute in range(6)
]
COLUMNS = {"episodes": "job", "obs": "level"}


def findings(tmp_path, rows, columns=COLUMNS, header=HEADER):
    (tmp_path / "log.csv").write_text(header + "\n".join(rows) + "\n")
    report = inspect_source(tmp_path / "log.csv", columns=columns)
    return {finding.kind: finding.text for finding in report.findings}


@pytest.mark.parametrize("shuffled", [False, True])
def test_repeated_rows_are_counted_by_their_row_in_the_file(tmp_path, shuffled):
    rows = [*ROWS[:3], ROWS[2], *ROWS[3:]]
    order = np.random.default_rng(0).permutation(len(rows)) if shuffled else np.arange(len(rows))
    found = findings(tmp_path, [rows[place] for place in order])
    last = max(place for place, row in enumerate(order) if row in (2, 3))
    assert found["repeated_rows"] == f"1 row repeats another row with the same 'stamp' and values: row {last}"


def test_several_repeats_and_missing_values_are_reported(tmp_path):
    rows = [*ROWS[:3], ROWS[2], ROWS[2], *ROWS[3:]]
    rows = [row.replace("1.2,", "NA,") for row in rows]
    assert findings(tmp_path, rows)["repeated_rows"].startswith("2 rows repeat another row")


def test_equal_times_with_other_values_are_no_repeats(tmp_path):
    rows = [*ROWS[:3], ROWS[2].replace("1.2,", "1.25,"), *ROWS[3:]]
    assert "repeated_rows" not in findings(tmp_path, rows)


def test_equal_rows_of_an_hour_are_no_repeats(tmp_path):
    """A number called time may be the hour of the day, in which many rows are equal."""
    rows = ["1,8,0.5,0,0", "1,8,0.5,0,0", "1,9,0.7,1,1"]
    assert "repeated_rows" not in findings(tmp_path, rows, header="job,time,level,action,reward\n")
    assert "repeated_rows" in findings(tmp_path, rows, {**COLUMNS, "time": "time"}, "job,time,level,action,reward\n")
