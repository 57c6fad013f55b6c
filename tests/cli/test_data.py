"""`data`: looking at transitions, drawing, converting and recording them."""

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
    """Two episodes of three rows: the first dies, the second runs out of time."""
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


def test_check_as_json_has_what_scripts_read(cli, log):
    result = cli("data", "check", log, "--action-range", "-2,2", "--json")
    told = json.loads(result.stdout)
    assert result.exit_code == 0
    counts = {name: told[name] for name in ("rows", "transitions", "episodes", "terminals", "timeouts", "trainable")}
    assert counts == {
        "rows": 6, "transitions": 6, "episodes": 2, "terminals": 1, "timeouts": 1, "trainable": True,
    }  # fmt: skip
    assert told["findings"] == []
    assert told["columns"]["obs"]["stored_as"] == "observations"
    assert told["returns"]["max"] == 12  # 3 + 4 + 5


def test_check_for_people_shows_the_guessed_names_and_the_verdict(cli, log):
    lines = cli("data", "check", log, "--action-range", "-2,2").stdout.splitlines()
    assert "rows        6 in the file, 6 transitions to learn from" in lines
    assert "episodes    2: 1 ended in a terminal state, 1 by time-out or where the data ends" in lines
    assert ["dones", "terminals"] in [line.split()[:2] for line in lines]
    assert lines[-1] == "it can be trained on"


@pytest.mark.parametrize(("width", "told"), [(3, "no number, 0 to 12, 0 to 12"), (9, "0 to 12 over all 9")])
def test_check_tells_the_ranges_beside_a_number_that_is_never_there(cli, tmp_path, width, told):
    obs = np.repeat(np.array([0, 1, 2, 10, 11, 12], np.float32)[:, None], width, 1)
    obs[:, 0] = np.nan
    result = cli("data", "check", write(tmp_path / "bad.npz", observations=obs, next_observations=obs))
    assert next(line for line in result.stdout.splitlines() if line.startswith("obs ")).endswith(told)


def test_check_tells_all_faults_at_once_and_fails(cli, tmp_path):
    path = write(tmp_path / "bad.npz", rewards=np.array([0, np.nan, 2, 3, 4, 5]), timeouts=np.zeros(6))
    result = cli("data", "check", path, "--action-range", "-1,1", "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["trainable"]) == (1, False)
    assert [finding["kind"] for finding in told["findings"]] == ["nan", "out_of_range"]


def test_what_is_allowed_no_longer_fails(cli, tmp_path):
    path = write(tmp_path / "bad.npz", rewards=np.array([0, np.nan, 2, 3, 4, 5]))
    result = cli("data", "check", path, "--action-range", "-1,1", "--allow", "nan,out_of_range", "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["rows"], told["transitions"]) == (0, 6, 5)


def test_check_takes_bounds_from_an_environment(cli, tmp_path):
    obs = np.zeros((6, 3), np.float32)
    path = write(tmp_path / "log.npz", observations=obs, next_observations=obs)  # Pendulum's torque is -2 to 2
    assert cli("data", "check", path, "--env", "Pendulum-v1").exit_code == 0


def test_check_and_training_refuse_with_the_same_sentence(cli, tmp_path):
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
    ("option", "value", "message"),
    [
        ("--columns", "obs", "--columns must be OURS=THEIRS, such as obs=state, got 'obs'"),
        (
            "--columns",
            "obs=x,actions=u",
            "--columns names one column at a time, --columns obs=x --columns actions=u, got 'obs=x,actions=u'",
        ),
        ("--action-range", "a,b", "--action-range must be LOW,HIGH, such as -2,2, got 'a,b'"),
        ("--action-range", "3", "--action-range must be LOW,HIGH, such as -2,2, got '3'"),
        ("--allow", "nans", "allow must be among nan, out_of_range, no_episode_end, crossing, got 'nans'"),
    ],
)
def test_a_wrong_option_is_told_in_one_sentence(cli, log, option, value, message):
    result = cli("data", "check", log, option, value)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"error: {message}\n")


def test_a_column_can_be_left_out(cli, tmp_path):
    path = write(tmp_path / "log.npz", note=np.full(6, np.nan))
    assert cli("data", "check", path).exit_code == 1
    assert cli("data", "check", path, "--columns", "note=").exit_code == 0


def test_check_tells_the_error_and_no_counts_where_nothing_can_be_used(cli, tmp_path):
    path = write(tmp_path / "log.npz", rewards=np.zeros((6, 2)), speed=np.full(6, 3.0))
    told = cli("data", "check", path).stdout
    assert "rows        6 in the file, none can be used: see the errors below\n" in told
    assert "episodes " not in told
    assert ["speed", "speed"] in [line.split()[:2] for line in told.splitlines()]
    assert "error: column 'rewards' must have one number per row, got shape (6, 2)\n" in told


@pytest.mark.parametrize("still", [False, True])
def test_check_tells_flags_that_are_not_there_from_columns_that_were_made(cli, tmp_path, still):
    (tmp_path / "log.csv").write_text(
        "obs,action,reward,episode\n" + "".join(f"{0 if still else n},0.5,{n},{n // 3}\n" for n in range(6))
    )
    rows = [re.split(" {3,}", line) for line in cli("data", "check", tmp_path / "log.csv").stdout.splitlines()]
    labels = {row[0].strip(): row[1] for row in rows if len(row) == 4}
    assert [labels[name] for name in ("dones", "truncated", "next_obs")] == [
        "not there, so 0", "made from the others", "made from the others",
    ]  # fmt: skip


def test_one_flag_without_successors_is_told_what_to_type(cli, tmp_path):
    lines = [f"{n},0.5,{n},{int(n % 3 == 2)}\n" for n in range(9)]
    (tmp_path / "log.csv").write_text("obs,action,reward,done\n" + "".join(lines))
    refused = cli("data", "check", tmp_path / "log.csv")
    terminal, limit = ["--columns", "truncated=done"], ["--columns", "truncated=done", "--columns", "dones="]
    assert refused.exit_code == 1
    assert f"use {' '.join(terminal)} if all are terminal states, {' '.join(limit)} if all are" in refused.stdout
    counts = [
        json.loads(cli("data", "check", tmp_path / "log.csv", *said, "--json").stdout) for said in (terminal, limit)
    ]
    assert [(told["trainable"], told["terminals"], told["timeouts"]) for told in counts] == [(True, 3, 0), (True, 0, 3)]


@pytest.mark.parametrize("command", [("show", "--out"), ("convert",)])
def test_a_directory_that_is_not_there_is_told_before_the_work(cli, log, tmp_path, command):
    name, *option = command
    result = cli("data", name, log, *option, tmp_path / "absent" / f"log.{'png' if option else 'npz'}")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: there is no directory {tmp_path}/absent to write log.")


def test_a_file_that_is_not_there(cli, tmp_path):
    result = cli("data", "check", tmp_path / "absent.npz")
    assert (result.exit_code, result.stderr) == (2, f"error: dataset file {tmp_path}/absent.npz not found\n")


def test_show_writes_a_picture(cli, log, tmp_path):
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


def test_collect_random_rows_that_can_be_trained_on(cli, tmp_path):
    result = cli("data", "collect", "random", "--env", "CartPole-v1", "--steps", "80", "--out", tmp_path / "rows.npz")
    assert result.stdout.startswith(f"data        {tmp_path}/rows.npz: 80 transitions, "), result.stderr
    told = json.loads(cli("data", "check", tmp_path / "rows.npz", "--json").stdout)
    assert (told["rows"], told["trainable"]) == (80, True)


def test_collect_counts_whole_episodes_and_says_what_was_cut(cli, tmp_path):
    def told(steps: int) -> list[str]:  # of eight Pendulums side by side, whose episodes have 200 steps
        options = ["--env", "Pendulum-v1", "--steps", steps, "--out", tmp_path / f"{steps}.npz"]
        return [line.split(": ")[-1] for line in cli("data", "collect", "random", *options).stdout.splitlines()[:2]]

    cut = "cut         8 more episodes where the recording ends; marked truncated"
    assert told(1600)[0] == "1,600 transitions, 8 whole episodes"
    assert told(1608) == ["1,608 transitions, 8 whole episodes", cut]
    assert told(80) == ["80 transitions, 0 whole episodes", cut]


def test_collect_from_a_run_repeats_with_its_seed(cli, pendulum, tmp_path):
    def rows(name: str, *options: str) -> str:
        result = cli("data", "collect", pendulum, "--steps", "16", "--out", tmp_path / name, *options)
        assert result.exit_code == 0, result.stderr
        return load_transition_dataset(tmp_path / name).fingerprint()

    first = rows("first.npz")  # in the environment the run was trained in
    assert first == rows("again.npz", "--env", "Pendulum-v1")
    others = {rows("a.npz", "--seed", "1"), rows("b.npz", "--epsilon", "0.9"), rows("c.npz", "--stochastic")}
    assert len(others | {first}) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["random"], "no environment given; add one, such as --env CartPole-v1"),
        (
            ["random", "--env", "CartPole-v1", "--epsilon", "0.5"],
            "--epsilon and --stochastic need a run; remove them for random actions",
        ),
        (["absent", "--env", "CartPole-v1"], "no run or checkpoint at absent"),
    ],
)
def test_collect_says_what_is_missing(cli, tmp_path, arguments, message):
    result = cli("data", "collect", *arguments, "--steps", "8", "--out", tmp_path / "rows.npz")
    assert (result.exit_code, result.stderr) == (2, f"error: {message}\n")


def test_collect_refuses_another_environment_than_the_agent_knows(cli, pendulum, tmp_path):
    result = cli("data", "collect", pendulum, "--env", "CartPole-v1", "--steps", "8", "--out", tmp_path / "rows.npz")
    assert (result.exit_code, result.stderr) == (
        2,
        "error: CartPole-v1 has observations of shape (4,) and 2 actions, but the agent was trained for observations "
        "of shape (3,) and 1 action dimensions\n",
    )


def test_a_file_that_cannot_be_written_is_told_before_anything_is_collected(cli, tmp_path):
    result = cli("data", "collect", "random", "--env", "Absent-v0", "--steps", "8", "--out", tmp_path / "rows.txt")
    assert result.stderr == (
        f"error: cannot write {tmp_path}/rows.txt: supported are .npz, .parquet files, or a new Minari directory\n"
    )
