"""Unquoted patterns of files, which the shell replaces by the files."""

import json
from pathlib import Path

import pytest
import typer

from rl_training.cli.globs import join_files

TABLE = Path(__file__).parents[1] / "data" / "tables" / "named_actions.csv"


@pytest.fixture
def logs(tmp_path, monkeypatch):
    """Three logs and another table in a folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    for name in ("log_1", "log_2", "log_3", "other"):
        (tmp_path / "logs" / f"{name}.csv").write_text(TABLE.read_text())
    return [f"logs/log_{number}.csv" for number in (1, 2, 3)]


@pytest.mark.parametrize("option", ["--data", "--dataset", "--datasets", "--ope", "--test"])
def test_files_after_an_option_become_their_pattern(logs, option):
    assert join_files(["train", option, *logs, "bc"]) == ["train", option, "logs/log_*.csv", "bc"]
    assert join_files(["train", option, *logs, "logs/other.csv"]) == ["train", option, "logs/*.csv"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "bc", "--dataset", "logs/log_1.csv", "--steps", "3"],
        ["data", "check", "logs/log_1.csv", "logs/log_2.csv"],
        ["data", "split", "logs/log_1.csv", "--test", "0.2"],
        ["predict", "run", "--obs-file", "logs/log_1.csv"],
        ["evaluate", "run", "--ope"],
        [],
    ],
)
def test_other_arguments_stay(logs, arguments):
    assert join_files(arguments) == arguments


def test_files_that_no_pattern_stands_for_are_refused(logs):
    with pytest.raises(typer.BadParameter, match="got 2 files that no pattern stands for, the first is"):
        join_files(["train", "--dataset", logs[0], logs[2]])


def test_train_check_and_split_take_unquoted_patterns(cli, logs, tmp_path):
    short = ["--steps", "2", "--set", "hidden_sizes=[4]", "--set", "log=none", "--quiet", "--output", tmp_path / "run"]
    result = cli("train", "bc", "--dataset", *logs, *short)
    assert result.exit_code == 0, result.output
    assert "dataset: logs/log_*.csv" in (tmp_path / "run" / "config.yaml").read_text()
    counted = [json.loads(cli("data", "check", *each, "--json").stdout)["rows"] for each in (logs, logs[:1])]
    assert counted[0] == 3 * counted[1]
    assert cli("data", "split", *logs, "--out", tmp_path / "parts").exit_code == 0
