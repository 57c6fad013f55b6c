"""Dates in tables: read where the order of day and month is clear, otherwise reported or refused."""

import re
from datetime import date, datetime, time
from pathlib import Path

import pandas as pd
import pytest

from rl_training.data import TransitionDataset, load_transition_dataset, read_columns
from rl_training.data.datasets.checks import inspect_source
from rl_training.data.readers import cells

DAY = 86_400
OBS = {"obs": "level"}


@pytest.fixture(params=["pyarrow", "without pyarrow"], autouse=True)
def reader(request, monkeypatch):
    if request.param == "without pyarrow":
        monkeypatch.setattr("rl_training.data.readers.csv._arrow_table", lambda *_: None)


def write(path: Path, dates: list[str], name: str = "when") -> Path:
    """A table of one episode for every four rows."""
    rows = [f'{row // 4},"{date}",{row},{row % 2},{row},{int(row % 4 == 3)}' for row, date in enumerate(dates)]
    path.write_text("\n".join([f"episode,{name},level,action,reward,done", *rows]) + "\n")
    return path


@pytest.mark.parametrize(
    ("dates", "seconds"),
    [
        (["09/01/2026", "31/01/2026"], 22 * DAY),
        (["9/1/2026", "9/30/2026"], 29 * DAY),
        (["01-02-2026", "13-02-2026 00:00:30"], 12 * DAY + 30),
        (["01.02.2026 9:30", "03.02.2026 09:30"], 2 * DAY),
        (["2026/01/02", "2026/02/01"], 30 * DAY),
        (["2026-1-2", "2026-2-1 00:00:05"], 30 * DAY + 5),
        (["05/05/2026 08:00", "05/05/2026 09:00"], 3600),
        (["1/31/2026, 12:30 AM", "1/31/2026, 12:30 PM"], DAY / 2),
        (["1/31/2026 9:30:00 AM", "1/31/2026 9:30:00 PM"], DAY / 2),
    ],
)
def test_a_date_whose_order_is_clear_is_the_time(tmp_path, dates, seconds):
    dataset = load_transition_dataset(write(tmp_path / "log.csv", [*dates, *[dates[-1]] * 2]), columns=OBS)
    assert (dataset.time_column, dataset.columns["when"].tolist()) == ("when", [0, seconds, seconds, seconds])


def test_one_late_row_shows_the_order_and_the_rows_are_sorted(tmp_path):
    dates = [f"{day:02}/02/2026" for day in (4, 3, 2, 1)] * 1250 + ["13/02/2026"]
    read = read_columns(write(tmp_path / "log.csv", dates), columns=OBS)
    assert read.columns["rewards"][:3].tolist() == [3, 2, 1]


@pytest.mark.parametrize("late", ["05/13/2026", "13/05/2026"])
def test_first_dates_that_fit_both_orders_do_not_decide_for_later_ones(tmp_path, late):
    file = write(tmp_path / "log.csv", ["05/05/2026"] * 5000 + [late] * 4)
    dataset = load_transition_dataset(file, columns=OBS)
    assert dataset.columns["when"][[0, -1]].tolist() == [0, 8 * DAY]


def test_later_dates_that_fit_both_orders_are_reported(tmp_path):
    dataset = load_transition_dataset(write(tmp_path / "log.csv", ["05/05/2026"] * 5000 + ["05/06/2026"]), columns=OBS)
    assert dataset.time_column == ""
    assert any("do not show one order of day and month" in note for note in dataset.notes)


def test_the_order_that_one_file_shows_holds_for_all(tmp_path):
    first = write(tmp_path / "1.csv", ["01/02/2026", "02/02/2026", "03/02/2026", "04/02/2026"])
    second = write(tmp_path / "2.csv", ["12/02/2026", "13/02/2026", "14/02/2026", "15/02/2026"])
    for columns, name in ((OBS, "when"), ({**OBS, "time": "when"}, "time")):
        for files in ([first, second], [second, first]):
            read = read_columns(files, columns=columns)
            assert sorted(read.columns[name] / DAY) == [0, 1, 2, 3, 11, 12, 13, 14]


@pytest.mark.parametrize(
    ("name", "dates", "reason"),
    [
        ("when", ["01/02/2026", "02/02/2026"], "dates such as '01/02/2026' do not show one order of day and month"),
        ("when", ["01/01/2026", "02/01/2026"], "dates such as '01/01/2026' do not show one order of day and month"),
        ("when", ["31/01/2026", "01/31/2026"], "dates such as '31/01/2026' do not show one order of day and month"),
        ("when", ["31/01/26", "01/02/26"], "'31/01/26' is no timestamp that can be read"),
        ("when", ["01/02/26", "02/02/26"], "'01/02/26' is no timestamp that can be read"),
        ("when", ["31/01/2026", "01/02/2026 noon"], "'01/02/2026 noon' is no timestamp that can be read"),
        ("date", ["2026-01-31", "later"], "'later' is no timestamp that can be read"),
        ("date", ["Jan 31", "Feb 1"], "'Jan 31' is no timestamp that can be read"),
    ],
)
def test_text_that_may_be_a_time_is_reported_unless_it_is_left_out(tmp_path, name, dates, reason):
    file = write(tmp_path / "log.csv", dates * 2, name)
    findings = [each for each in inspect_source(file, columns=OBS).findings if each.kind == "unread_time"]
    fix = f"write it as 2026-01-31T12:30:00 to order the rows, or leave it out with --columns {name}="
    assert [each.sentence for each in findings] == [f"{name!r} is ignored: {reason}; {fix}"]
    assert any(reason in note for note in load_transition_dataset(file, columns=OBS).notes)
    for columns in ({name: ""}, {"time": ""}, {"episodes": name}):
        report = inspect_source(file, columns={**OBS, **columns})
        assert "unread_time" not in {each.kind for each in report.findings}


def test_other_numbers_with_points_are_no_dates(tmp_path):
    file = write(tmp_path / "log.csv", ["10.0.10.1", "10.0.10.2", "1.2.3", "4.5.6"])
    assert "unread_time" not in {each.kind for each in inspect_source(file, columns=OBS).findings}


def test_a_named_time_that_is_not_clear_is_refused(tmp_path):
    file = write(tmp_path / "log.csv", ["01/02/2026", "02/02/2026"])
    with pytest.raises(
        ValueError, match=r"row 0 holds '01/02/2026', which may have the day or the month first; rewrite"
    ):
        load_transition_dataset(file, columns={**OBS, "time": "when"})


def test_a_later_row_in_another_order_is_refused_with_its_row(tmp_path):
    file = write(tmp_path / "log.csv", ["31/01/2026"] * 5000 + ["01/31/2026"])
    with pytest.raises(ValueError, match=r"such as 2026-01-31T12:30:00, but row 5000 holds '01/31/2026'; rewrite them"):
        read_columns(file, columns=OBS)


class Python310(datetime):
    """Reads ISO 8601 as Python 3.10 does: fractions of 3 or 6 digits, and zones with hours and minutes."""

    @classmethod
    def fromisoformat(cls, text):
        if re.search(r"[+-]\d\d(\d\d)?$", text[10:]) or re.search(r",|[.](?!(\d{3}){1,2}(\D|$))", text):
            raise ValueError(text)
        return datetime.fromisoformat(text)


@pytest.mark.parametrize("python", [datetime, Python310])
def test_every_python_reads_fractions_of_seconds_and_zones_alike(python, tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "datetime", python)
    times = [
        "2026-01-31 12:00:00.5+00",
        "2026-01-31T12:00:01,25Z",
        "2026-01-31T13:00:02.123456789+0100",
        "2026-01-31 12:00:03",
    ]
    dataset = load_transition_dataset(write(tmp_path / "log.csv", times), columns=OBS)
    assert dataset.columns["when"].tolist() == pytest.approx([0, 0.75, 1.623456, 2.5])


def test_dates_of_parquet_files_and_frames_are_read_too(tmp_path):
    pd.read_csv(write(tmp_path / "log.csv", ["30/01/2026", "31/01/2026"] * 2)).to_parquet(tmp_path / "log.parquet")
    assert load_transition_dataset(tmp_path / "log.parquet", columns=OBS).columns["when"].tolist() == [0, 0, DAY, DAY]
    assert "when" not in load_transition_dataset(tmp_path / "log.parquet", columns=OBS, text_times=False).columns


@pytest.mark.parametrize(("name", "warned"), [("visit", True), ("time", False)])
def test_a_time_that_is_one_of_several_is_reported(tmp_path, name, warned):
    dates = ["2026-01-01", "2026-01-02", "2026-01-03"]
    path = tmp_path / "log.csv"
    frame = pd.DataFrame({"born": dates[0], name: dates, "obs": 0.0, "action": 0, "reward": 1.0, "episode": 0})
    frame.to_csv(path, index=False)
    assert ("several_times" in [each.kind for each in inspect_source(str(path)).findings]) == warned
    named = inspect_source(str(path), columns={"time": name})
    assert "several_times" not in [each.kind for each in named.findings]
    ignored = inspect_source(str(path), columns={"born": ""})
    assert "several_times" not in [each.kind for each in ignored.findings]


CLOCKS = [f"08:0{minute}:00" for minute in range(4)]


@pytest.mark.parametrize("form", ["csv", "parquet", "frame"])
@pytest.mark.parametrize("dated", [False, True])
def test_times_of_the_day_are_reported_and_refused_as_times(tmp_path, form, dated):
    frame = pd.DataFrame({"time": CLOCKS, "level": [0.0, 1, 2, 3], "action": [0, 1, 0, 1], "reward": 1.0})
    frame = frame.assign(episode=[0, 0, 1, 1], **({"date": "2026-01-05"} if dated else {}))
    frame.to_csv(tmp_path / "log.csv", index=False)
    frame["time"] = [time.fromisoformat(each) for each in CLOCKS]
    frame.to_parquet(tmp_path / "log.parquet")

    def read(**columns):
        if form == "frame":
            return TransitionDataset.from_dataframe(frame, obs="level", **columns)
        return load_transition_dataset(tmp_path / f"log.{form}", columns={"obs": "level", **columns})

    assert any(f"'time' is ignored: {CLOCKS[0]!r} is no timestamp that can be read" in note for note in read().notes)
    with pytest.raises(ValueError, match=f"'time' must hold timestamps such as .* but row 0 holds '{CLOCKS[0]}'; rewr"):
        read(time="time")


def test_dates_that_are_objects_are_read_if_their_name_is_that_of_a_time(tmp_path):
    days = [date(2026, 1, day) for day in (3, 1, 2, 4)]
    frame = pd.DataFrame({"date": days, "level": [2, 0, 1, 3], "action": 1, "reward": 1.0, "episode": [0, 0, 0, 1]})
    assert TransitionDataset.from_dataframe(frame, obs="level").columns["obs"].tolist() == [[0], [1]]
