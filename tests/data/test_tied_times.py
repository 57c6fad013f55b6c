"""Rows of an episode with the same time, such as one in minutes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rl_training.data import load_transition_dataset
from rl_training.data.datasets.checks import inspect_source
from rl_training.data.datasets.validation import DatasetError

HEADER = "job,stamp,level,action,reward"
COLUMNS = {"episodes": "job", "obs": "level"}
ROWS = [f"{job},2026-01-0{job} 08:0{step // 3},{10 * job + step},0,{step}" for job in (1, 2) for step in range(9)]
LEVELS = [10.0 * job + step for job in (1, 2) for step in range(8)]  # the last row of each has no next one


def write(folder, rows: list[str], more: Sequence[object] | None = None, name: str = "") -> str:
    added = [""] * len(rows) if more is None else [f",{value}" for value in more]
    lines = [row + cell for row, cell in zip(rows, added, strict=True)]
    (folder / "log.csv").write_text("\n".join([HEADER + f",{name}" * bool(name), *lines]) + "\n")
    return str(folder / "log.csv")


def findings(path: str) -> dict[str, str]:
    return {each.kind: each.sentence for each in inspect_source(path, columns=COLUMNS).findings}


def levels(path: str) -> list[float]:
    return load_transition_dataset(path, columns=COLUMNS).columns["obs"][:, 0].tolist()


def test_rows_that_cannot_be_ordered_by_their_time_are_reported(tmp_path):
    rows = [*ROWS[3:9], *ROWS[:3], *ROWS[9:]]
    path = write(tmp_path, rows)
    assert levels(path) == LEVELS
    text = (
        "12 rows of 18 with the 'stamp' of another row of the episode: their order is that of the file: rows 1, 2, 4, 5"
    )
    assert findings(path)["tied_times"].startswith(text)
    assert findings(path)["tied_times"].endswith("such as a step, or a date with its time, with --columns time=NAME")


def test_a_file_with_the_newest_rows_first_is_read_from_its_end(tmp_path):
    path = write(tmp_path, ROWS[::-1])
    assert sorted(levels(path)) == LEVELS
    assert levels(path)[:8] == LEVELS[8:]  # the order of the episodes is that of the file
    assert "that of the file from its end, where the oldest rows are" in findings(path)["tied_times"]


@pytest.mark.parametrize("kind", ["in order", "alternating", "unique", "repeated"])
def test_no_ties_are_reported_where_the_order_is_known(tmp_path, kind):
    rows = {
        "in order": ROWS,
        "alternating": [row for pair in zip(ROWS[:9], ROWS[9:], strict=True) for row in pair],
        "unique": [*ROWS[::3]][::-1],
        "repeated": [ROWS[6], ROWS[3], ROWS[3], ROWS[0], *ROWS[9::3]],
    }[kind]
    found = findings(write(tmp_path, rows))
    assert "tied_times" not in found
    assert ("repeated_rows" in found) == (kind == "repeated")
    assert ("sorted" in found) == (kind != "in order")


def test_a_row_after_the_end_of_its_episode_is_refused(tmp_path):
    order = [*range(3, 6), 8, 7, 6, *range(3), *range(9, 18)]  # the end of the first job comes before its last rows
    rows, ends = [ROWS[row] for row in order], [row in (8, 17) for row in order]
    with pytest.raises(
        DatasetError, match=r"1 row would follow the end of the episode, at the same 'stamp', so this .*: 4"
    ):
        load_transition_dataset(write(tmp_path, rows, ends, "done"), columns=COLUMNS)
    by_step = load_transition_dataset(write(tmp_path, rows, order, "step"), columns={**COLUMNS, "time": "step"})
    assert by_step.columns["obs"][:, 0].tolist() == LEVELS
    newest = write(tmp_path, ROWS[::-1], [row in (8, 17) for row in range(18)][::-1], "done")
    assert load_transition_dataset(newest, columns=COLUMNS).columns["dones"].sum() == 2


def test_a_date_does_not_order_the_rows_of_a_day(tmp_path):
    rows = [row[:12] + row[18:] for row in [*ROWS[3:9], *ROWS[9:], *ROWS[:3]]]
    found = findings(write(tmp_path, rows))
    assert found["tied_times"].startswith("16 rows of 18 with the 'stamp' of another row")
    with pytest.raises(DatasetError, match="1 row would follow the end of the episode"):
        load_transition_dataset(write(tmp_path, rows, [int(row[-1]) // 8 for row in rows], "done"), columns=COLUMNS)


def test_episodes_that_alternate_in_order_are_read_although_ends_share_their_time(tmp_path):
    rows = [f"{job},2026-01-01 08:00:0{step // 2},{10 * job + step},0,1" for step in range(6) for job in (1, 2)]
    ends = [step in (2, 5) for step in range(6) for _ in (1, 2)]
    assert len(levels(write(tmp_path, rows, ends, "done"))) == 12
