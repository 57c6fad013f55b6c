"""`data split`: files, counts and refusals."""

from __future__ import annotations

import csv
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from rl_training.data import load_transition_dataset


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Ten episodes of four rows; each patient has two of them, and hours start high."""
    path = tmp_path / "logs.csv"
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["episode", "patient", "hour", "pulse", "dose", "reward", "done", "truncated"])
        for episode in range(10):
            for step in range(4):
                table.writerow([episode, episode // 2, 90 - 10 * episode + step, episode + step / 4, episode % 3, 1.5,
                                int(step == 3), 0])  # fmt: skip
    return path


NAMED = ["--columns", "obs=pulse", "--columns", "actions=dose"]


def test_a_table_becomes_two_files_that_need_no_options(cli, logs, tmp_path):
    result = cli("data", "split", logs, "--test", "0.3", "--out", tmp_path / "parts", *NAMED, "--json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["source"], report["by"], report["seed"]) == (str(logs), "episode", 0)
    assert (report["train"]["episodes"], report["test"]["episodes"]) == (7, 3)
    assert (report["train"]["rows"], report["test"]["rows"], report["test"]["terminated"]) == (28, 12, 3)
    assert report["test"]["return_mean"] == report["test"]["return_max"] == 6.0
    assert [Path(report[side]["path"]).name for side in ("train", "test")] == ["train.parquet", "test.parquet"]
    parts = [load_transition_dataset(report[side]["path"]) for side in ("train", "test")]
    assert [len(part) for part in parts] == [28, 12]
    assert all(part.spec.action_dim == 3 for part in parts)  # the number of actions of the whole table
    assert {"patient", "hour"} <= parts[0].columns.keys()


def test_the_same_seed_splits_alike(cli, logs, tmp_path):
    for out, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert cli("data", "split", logs, "--out", tmp_path / out, "--seed", seed, *NAMED).exit_code == 0
    a, b, c = (load_transition_dataset(tmp_path / out / "test.parquet").fingerprint() for out in "abc")
    assert a == b != c


def test_a_patient_stays_on_one_side(cli, logs, tmp_path):
    assert cli("data", "split", logs, "--out", tmp_path / "parts", "--group", "patient", *NAMED).exit_code == 0
    train, test = (
        {*load_transition_dataset(tmp_path / "parts" / f"{side}.parquet").columns["patient"].tolist()}
        for side in ("train", "test")
    )
    assert (len(train), len(test), train & test) == (4, 1, set())


def test_a_group_may_be_text_in_several_files(cli, logs, tmp_path):
    names = ["zoe", "ada", "bob", "eve", "kim"]
    head, *rows = logs.read_text().splitlines()
    cells = [row.split(",") for row in rows]
    named = [",".join([episode, names[int(patient)], *rest]) for episode, patient, *rest in cells]
    for number, part in enumerate((named[:16], named[12:])):  # bob's second episode begins the second file
        (tmp_path / f"part_{number}.csv").write_text("\n".join([head, *part]) + "\n")
    files = [tmp_path / "part_0.csv", tmp_path / "part_1.csv"]
    result = cli("data", "split", *files, "--out", tmp_path / "parts", "--group", "patient", *NAMED, "--json")
    assert result.exit_code == 0, result.stderr
    patients = [load_transition_dataset(tmp_path / "parts" / f"{side}.parquet") for side in ("train", "test")]
    train, test = ({*each.columns["patient"].tolist()} for each in patients)
    assert (train | test, train & test) == ({0, 1, 2, 3, 4}, set())
    assert patients[0].spec.categories is None


def test_the_last_hours_are_the_test_part(cli, logs, tmp_path):
    result = cli("data", "split", logs, "--out", tmp_path / "parts", "--by", "time", "--time", "hour", *NAMED, "--json")
    assert json.loads(result.stdout)["notes"] == []
    hours = [
        load_transition_dataset(tmp_path / "parts" / f"{side}.parquet").columns["hour"] for side in ("train", "test")
    ]
    assert (int(hours[0].max()), int(hours[1].min())) == (73, 80)


def test_episodes_that_overlap_in_time_are_noted(cli, logs, tmp_path):
    text = logs.read_text().replace("1,0,80,1.0", "1,0,99,1.0")  # its first row
    logs.write_text(text.replace("5,2,42,5.5", "5,2,95,5.5"))
    result = cli("data", "split", logs, "--out", tmp_path / "parts", "--time", "hour", *NAMED)
    assert "note: 1 training row of 32 are later than the first test row" in result.stdout


def test_pieces_of_cut_episodes_are_not_counted_as_episodes(cli, logs, tmp_path):
    """Without a pulse in the third row, an episode loses two rows and is cut into two pieces; five of ten are."""
    rows = [line.split(",") for line in logs.read_text().splitlines()]
    missing = [[*row[:3], "", *row[4:]] if number % 4 == 3 and number < 20 else row for number, row in enumerate(rows)]
    logs.write_text("\n".join(",".join(row) for row in missing) + "\n")
    split = ["data", "split", logs, "--out", tmp_path / "parts", "--allow", "nan", *NAMED]
    report = json.loads(cli(*split, "--json").stdout)
    sides = report["train"], report["test"]
    assert [each["episodes"] for each in sides] == [8, 2]
    assert (sum(each["rows"] for each in sides), sum(each["pieces"] for each in sides)) == (30, 15)
    assert sum(each["return_mean"] * each["episodes"] for each in sides) == 30 * 1.5
    assert {each["return_min"] for each in sides} <= {3.0, 6.0}  # two or four rows, never one
    assert "10 episodes are in 15 pieces, because rows are left out" in report["notes"][-1]
    checked = cli("data", "check", logs, "--allow", "nan", *NAMED).stdout
    assert "15: 10 terminated, 5 truncated by a time limit, a row left out or the end of the data" in checked
    again = json.loads(cli("data", "split", sides[0]["path"], "--out", tmp_path / "again", "--json").stdout)
    assert sum(again[side]["episodes"] for side in ("train", "test")) == 8


def test_an_npz_file_stays_one_and_the_counts_are_printed(cli, logs, tmp_path):
    cli("data", "convert", logs, tmp_path / "logs.npz", *NAMED)
    result = cli("data", "split", tmp_path / "logs.npz", "--out", tmp_path / "parts")
    assert result.exit_code == 0, result.stderr
    head, _, train, test, following = result.stdout.splitlines()
    assert head.split()[:3] == ["rows", "episodes", "terminated"]
    assert (train.split()[:3], test.split()[:3]) == (["train", "32", "8"], ["test", "8", "2"])
    assert train.endswith("train.npz")
    assert following.startswith("next        rl-training train")
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == ["test.npz", "train.npz"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--test", "1.5"], "test must be a fraction between 0 and 1, got 1.5"),
        (["--by", "group"], "--by group needs --group COLUMN, the column whose values stay together"),
        (["--by", "time", "--group", "patient"], "--group patient needs --by group, got --by time"),
        (["--by", "episode", "--time", "hour"], "--time hour needs --by time, got --by episode"),
        (["--group", "doctor"], "has no column 'doctor'; it has"),
        (["--group", "hour"], "the group changes within an episode at row 1, from 90 to 91; episodes are never cut"),
        (["--group", "truncated"], "needs at least two groups, and all rows have the group 0"),
        (["--group", "episode"], "--group episode: this column marks the episodes, which stay whole; leave it out"),
        (["--columns", "truncated=pulso"], "has no column 'pulso' to use as truncated"),
        (["--allow", "everything"], "allow must be among nan, out_of_range"),
        (["--out", "FILE"], "--out must be a directory, but"),
        (["--out", "ABSENT"], "does not exist"),
        (["--out", "FULL"], "test.npz exists; choose another --out or remove it first"),
    ],
)
def test_a_split_that_cannot_be_made_is_one_sentence(cli, logs, tmp_path, arguments, message):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "test.npz").touch()
    places = {"FILE": logs, "ABSENT": tmp_path / "absent" / "parts", "FULL": tmp_path / "full"}
    out = [] if "--out" in arguments else ["--out", tmp_path / "parts"]
    result = cli("data", "split", logs, *NAMED, *out, *(places.get(each, each) for each in arguments))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not list((tmp_path / "parts").glob("*"))


def test_one_episode_is_not_split(cli, tmp_path):
    np.savez(tmp_path / "one.npz", obs=np.arange(4.0), actions=[0, 1, 0, 1], rewards=np.ones(4), terminals=[0, 0, 0, 1],
             next_obs=np.arange(1.0, 5.0))  # fmt: skip
    result = cli("data", "split", tmp_path / "one.npz", "--out", tmp_path / "parts")
    assert (result.exit_code, "at least two episodes, and the data has one" in result.stderr) == (2, True)


def test_an_unknown_kind_of_split_is_a_usage_error(cli, logs, tmp_path):
    assert cli("data", "split", logs, "--out", tmp_path / "parts", "--by", "rows").exit_code == 2


def test_without_pyarrow_the_other_format_is_named(cli, logs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    refused = cli("data", "split", logs, "--out", tmp_path / "parts", *NAMED)
    assert (refused.exit_code, "or write .npz files with --format npz" in refused.stderr) == (2, True)
    assert cli("data", "split", logs, "--out", tmp_path / "parts", *NAMED, "--format", "npz").exit_code == 0


@pytest.mark.skipif(os.name == "nt", reason="directories cannot be flushed")
def test_the_names_of_the_files_are_flushed_to_disk(cli, logs, tmp_path, monkeypatch):
    events: list[object] = []
    flush, replace = os.fsync, os.replace

    def record_fsync(descriptor: int) -> None:
        events.append(os.fstat(descriptor).st_ino)
        flush(descriptor)

    def record_replace(source: Path, target: Path) -> None:
        events.append(target.name)
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    result = cli("data", "split", logs, "--out", tmp_path / "parts", *NAMED)
    assert result.exit_code == 0, result.stderr
    folders = [folder.stat().st_ino for folder in (tmp_path / "parts", tmp_path)]
    assert events[-4:] == ["train.parquet", "test.parquet", *folders]
