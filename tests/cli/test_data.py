"""`data` checks, plots and converts datasets."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from rl_training.data import load_transition_dataset


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two episodes of three rows: the first terminates, the second is truncated."""
    write(tmp_path / "log.npz")
    return tmp_path / "log.npz"


def write(path: Path, **changed: np.ndarray) -> Path:
    obs = np.array([0, 1, 2, 10, 11, 12], np.float32)[:, None]
    columns = {
        "observations": obs,
        "actions": np.linspace(-2, 2, 6, dtype=np.float32)[:, None],
        "rewards": np.arange(6, dtype=np.float32),
        "next_observations": obs + 1,
        "terminals": np.array([0, 0, 1, 0, 0, 0]),
        "timeouts": np.array([0, 0, 0, 0, 0, 1]),
    }
    np.savez(path, **(columns | changed))  # type: ignore[arg-type]  # takes unpacked arrays for its own keyword
    return path


def test_check_as_json_has_counts_and_findings(cli, log):
    result = cli("data", "check", log, "--action-range", "-2,2", "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 0
    counts = {name: report[name] for name in ("rows", "transitions", "episodes", "terminals", "timeouts", "trainable")}
    assert counts == {
        "rows": 6, "transitions": 6, "episodes": 2, "terminals": 1, "timeouts": 1, "trainable": True,
    }  # fmt: skip
    assert report["findings"] == []
    assert report["columns"]["obs"]["stored_as"] == "observations"
    assert report["returns"]["max"] == 12  # 3 + 4 + 5


def test_check_prints_the_guessed_names_and_the_verdict(cli, log):
    lines = cli("data", "check", log, "--action-range", "-2,2").stdout.splitlines()
    assert "rows        6 in the file, 6 usable transitions" in lines
    assert "episodes    2: 1 terminated, 1 truncated by a time limit or the end of the data" in lines
    assert ["dones", "terminals"] in [line.split()[:2] for line in lines]
    assert lines[-1] == "usable for training"


def test_a_single_transition_is_counted_in_the_singular(cli, tmp_path):
    path = write(tmp_path / "one.npz", **{name: np.ones((1, 1)) for name in ("observations", "next_observations")},
                 actions=np.ones(1), rewards=np.ones(1), terminals=np.ones(1), timeouts=np.zeros(1))  # fmt: skip
    assert "rows        1 in the file, 1 usable transition\n" in cli("data", "check", path).stdout
    converted = cli("data", "convert", path, tmp_path / "new.npz", "--action-range", "-1,1")
    assert converted.stdout == f"{tmp_path / 'new.npz'}: 1 transition\n"


@pytest.mark.parametrize(("width", "report"), [(3, "NaN, 0 to 12, 0 to 12"), (9, "0 to 12 over 9 dimensions")])
def test_check_prints_ranges_beside_a_dimension_of_nan(cli, tmp_path, width, report):
    obs = np.repeat(np.array([0, 1, 2, 10, 11, 12], np.float32)[:, None], width, 1)
    obs[:, 0] = np.nan
    result = cli("data", "check", write(tmp_path / "bad.npz", observations=obs, next_observations=obs))
    assert next(line for line in result.stdout.splitlines() if line.startswith("obs ")).endswith(report)


def test_check_reports_all_errors_at_once_and_fails(cli, tmp_path):
    path = write(tmp_path / "bad.npz", rewards=np.array([0, np.nan, 2, 3, 4, 5]), timeouts=np.zeros(6))
    result = cli("data", "check", path, "--action-range", "-1,1", "--json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["trainable"]) == (1, False)
    assert [finding["kind"] for finding in report["findings"]] == ["nan", "out_of_range"]


def test_allowed_problems_do_not_fail(cli, tmp_path):
    path = write(tmp_path / "bad.npz", rewards=np.array([0, np.nan, 2, 3, 4, 5]))
    result = cli("data", "check", path, "--action-range", "-1,1", "--allow", "nan,out_of_range", "--json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["rows"], report["transitions"]) == (0, 6, 5)


def test_check_takes_bounds_from_an_environment(cli, tmp_path):
    obs = np.zeros((6, 3), np.float32)
    path = write(tmp_path / "log.npz", observations=obs, next_observations=obs)  # Pendulum's torque is -2 to 2
    assert cli("data", "check", path, "--env", "Pendulum-v1").exit_code == 0


def test_check_and_training_raise_the_same_message(cli, tmp_path):
    path = write(tmp_path / "bad.npz", rewards=np.array([0, np.nan, 2, 3, 4, 5]))
    (finding,) = [
        each for each in json.loads(cli("data", "check", path, "--json").stdout)["findings"] if each["kind"] == "nan"
    ]
    refused = cli("train", "bc", "--dataset", path, "--steps", "1", "--output", tmp_path / "run")
    assert refused.stderr == f"error: {path}: {finding['text']}; {finding['fix']}\n"


def test_columns_by_other_names(cli, log, tmp_path):
    with np.load(log) as stored:
        renamed = {"x" if name == "observations" else name: stored[name] for name in stored.files}
    np.savez(tmp_path / "own.npz", **renamed)
    unnamed = cli("data", "check", tmp_path / "own.npz", "--json")
    assert (unnamed.exit_code, json.loads(unnamed.stdout)["findings"][0]["kind"]) == (1, "unreadable")
    assert cli("data", "check", tmp_path / "own.npz", "--columns", "obs=x").exit_code == 0


@pytest.mark.parametrize(
    ("first", "second", "fix"),
    [
        ("obs=x", "obs=y,z", "write obs=x,y,z"),
        ("obs=x,y", "obs=y,z", "write obs=x,y,z"),
        ("rewards=a", "rewards=b", "choose rewards=a or rewards=b"),
        ("dones=a", "dones=a", "write dones=a"),
    ],
)
def test_a_name_that_columns_repeats_is_refused(cli, log, first, second, fix):
    result = cli("data", "check", log, "--columns", first, "--columns", second)
    name = first.partition("=")[0]
    assert (result.exit_code, result.stderr) == (2, f"error: --columns names {name} twice; {fix}\n")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--columns", "obs", "--columns must be NAME=COLUMN, such as obs=state, got 'obs'"),
        (
            "--columns",
            "obs=x,actions=u",
            "repeat --columns for each name: --columns obs=x --columns actions=u, got 'obs=x,actions=u'",
        ),
        ("--action-range", "a,b", "--action-range must be LOW,HIGH, such as -2,2, got 'a,b'"),
        ("--action-range", "3", "--action-range must be LOW,HIGH, such as -2,2, got '3'"),
        ("--allow", "nans", "allow must be among nan, out_of_range, no_episode_end, crossing, got 'nans'"),
    ],
)
def test_an_invalid_option_is_one_error_line(cli, log, option, value, message):
    result = cli("data", "check", log, option, value)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"error: {message}\n")


def test_a_column_can_be_left_out(cli, tmp_path):
    path = write(tmp_path / "log.npz", note=np.full(6, np.nan), speed=np.full(6, 3.0))
    assert "'note'" in cli("data", "check", path).stdout  # left out, because values are missing
    assert cli("data", "check", path, "--columns", "note=note").exit_code == 1
    report = cli("data", "check", path, "--columns", "note=", "--columns", "speed=").stdout
    assert "note:" not in report.lower()
    assert "speed" not in report


def test_check_prints_the_error_and_no_counts_if_no_row_is_usable(cli, tmp_path):
    path = write(tmp_path / "log.npz", rewards=np.zeros((6, 2)), speed=np.full(6, 3.0))
    report = cli("data", "check", path).stdout
    assert "rows        6 in the file, none usable: see the errors below\n" in report
    assert "episodes " not in report
    assert ["speed", "speed"] in [line.split()[:2] for line in report.splitlines()]
    assert "error: column 'rewards' must have one number per row, got shape (6, 2)\n" in report


@pytest.mark.parametrize("still", [False, True])
def test_check_distinguishes_missing_flags_from_derived_columns(cli, tmp_path, still):
    (tmp_path / "log.csv").write_text(
        "obs,action,reward,episode\n" + "".join(f"{0 if still else n},0.5,{n},{n // 3}\n" for n in range(6))
    )
    rows = [re.split(" {3,}", line) for line in cli("data", "check", tmp_path / "log.csv").stdout.splitlines()]
    labels = {row[0].strip(): row[1] for row in rows if len(row) == 4}
    assert [labels[name] for name in ("dones", "truncated", "next_obs")] == [
        "missing, set to 0", "derived from other columns", "derived from other columns",
    ]  # fmt: skip


def test_ambiguous_ends_report_the_options_to_use(cli, tmp_path):
    lines = [f"{n},0.5,{n},{int(n % 3 == 2)}\n" for n in range(9)]
    (tmp_path / "log.csv").write_text("obs,action,reward,done\n" + "".join(lines))
    refused = cli("data", "check", tmp_path / "log.csv")
    terminal, limit = ["--columns", "truncated=done"], ["--columns", "truncated=done", "--columns", "dones="]
    assert refused.exit_code == 1
    assert f"use {' '.join(terminal)} if all are terminal states, {' '.join(limit)} if all are" in refused.stdout
    counts = [
        json.loads(cli("data", "check", tmp_path / "log.csv", *options, "--json").stdout)
        for options in (terminal, limit)
    ]
    assert [(report["trainable"], report["terminals"], report["timeouts"]) for report in counts] == [
        (True, 3, 0),
        (True, 0, 3),
    ]


@pytest.mark.parametrize("command", [("show", "--out"), ("convert",)])
def test_a_missing_directory_is_reported_before_the_work(cli, log, tmp_path, command):
    name, *option = command
    result = cli("data", name, log, *option, tmp_path / "absent" / f"log.{'png' if option else 'npz'}")
    assert result.exit_code == 2
    assert re.match(rf"error: cannot write log\.\w+: directory {tmp_path}/absent does not exist$", result.stderr)


def test_a_missing_file_is_reported(cli, tmp_path, monkeypatch):
    result = cli("data", "check", tmp_path / "absent.npz")
    assert (result.exit_code, result.stderr) == (2, f"error: dataset file {tmp_path}/absent.npz not found\n")
    monkeypatch.chdir(tmp_path)  # a path of a run that is resumed elsewhere
    assert cli("data", "check", "absent.npz").stderr == f"error: dataset file absent.npz not found in {tmp_path}\n"


def test_show_writes_a_plot(cli, log, tmp_path):
    pytest.importorskip("matplotlib")
    result = cli("data", "show", log, "--out", tmp_path / "log.png")
    assert result.stdout == f"{tmp_path}/log.png\n"
    assert (tmp_path / "log.png").read_bytes().startswith(b"\x89PNG")


def test_show_without_matplotlib_names_the_extra(cli, log, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = cli("data", "show", log, "--out", tmp_path / "log.png")
    assert (result.exit_code, result.stderr) == (
        2,
        'error: a plot needs matplotlib: pip install "rl-training[plot]"\n',
    )


def test_show_draws_png_only(cli, log):
    assert (
        cli("data", "show", log, "--out", "log.jpg").stderr
        == "error: --out must end in .png, .pdf or .svg, got log.jpg\n"
    )


@pytest.mark.parametrize("name", ["copy.npz", "copy.parquet", "minari"])
def test_convert_keeps_every_row_and_unit(cli, log, tmp_path, name):
    if name == "copy.parquet":
        pytest.importorskip("pyarrow")
    if name == "minari":
        pytest.importorskip("h5py")
    result = cli("data", "convert", log, tmp_path / name, "--action-range", "-4,4")
    assert result.stdout == f"{tmp_path / name}: 6 transitions\n", result.stderr
    first, again = load_transition_dataset(log, action_range=(-4, 4)), load_transition_dataset(tmp_path / name)
    assert first.columns["actions"].flatten().tolist() == pytest.approx(again.columns["actions"].flatten().tolist())
    assert again.spec.action_high == (4.0,)
    for column in ("obs", "rewards", "next_obs", "dones", "truncated"):
        assert first.columns[column].tolist() == again.columns[column].tolist()


def test_convert_never_overwrites(cli, log):
    result = cli("data", "convert", log, log)
    assert (result.exit_code, result.stderr) == (2, f"error: {log} exists; name another file or remove it first\n")
