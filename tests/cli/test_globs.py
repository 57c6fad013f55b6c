"""Unquoted patterns of files, which the shell replaces by the files."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperCommand

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


def test_files_after_an_option_become_their_pattern(logs):
    assert join_files(["--ope", *logs, "bc"], {"--ope"}) == ["--ope", "logs/log_*.csv", "bc"]
    assert join_files(["--ope", *logs, "logs/other.csv"], {"--ope"}) == ["--ope", "logs/*.csv"]


@pytest.mark.parametrize(
    ("command", "pattern"),
    [
        (["train", "bc", "--dataset", "FILES"], "--dataset logs/log_*.csv"),
        (["evaluate", "run", "--ope", "FILES"], "--ope logs/log_*.csv"),
        (["export", "run", "--out", "a.onnx", "--data", "FILES"], "--data logs/log_*.csv"),
        (["bench", "--score", "ope", "--test", "FILES"], "--test logs/log_*.csv"),
        (["data", "split", "--test", "0.3", "FILES"], "--test 0.3 logs/log_1.csv logs/log_2.csv logs/log_3.csv"),
        (["data", "check", "FILES"], "check logs/log_1.csv logs/log_2.csv logs/log_3.csv"),
    ],
)
def test_options_that_take_a_dataset_join_unquoted_files(cli, logs, monkeypatch, command, pattern):
    parsed: list[str] = []

    def stop(self: Any, ctx: Any, args: list[str]) -> Any:
        parsed.extend([ctx.info_name, *args])
        raise typer.Exit

    monkeypatch.setattr(TyperCommand, "parse_args", stop)
    cli(*(each for word in command for each in (logs if word == "FILES" else [word])))
    assert pattern in " ".join(parsed)


@pytest.mark.parametrize("files", [["logs/log_1.csv", "logs/log_2.csv"], ["logs/log_1.csv,", "logs/log_2.csv"]])
def test_several_files_of_a_list_of_datasets_need_commas_or_quotes(cli, logs, files):
    result = cli("bench", "--algos", "bc", "--datasets", *files)
    assert result.exit_code == 2
    message = " ".join(result.stderr.replace("│", " ").split())
    assert "got 2 files; write --datasets logs/log_1.csv,logs/log_2.csv for one task per file, or a pattern" in message
    assert "in quotes, --datasets 'logs/*.csv', for one task with all of them" in message
    assert join_files(["--datasets", "logs/log_1.csv,logs/log_2.csv"], (), {"--datasets"})[1:] == [",".join(logs[:2])]


def test_a_list_with_spaces_is_answered_with_commas(cli):
    result = cli("bench", "--algos", "bc", "iql", "--envs", "Pendulum-v1")
    assert result.exit_code == 2
    assert "a plan must be a .yaml file, got iql; lists have commas between their values" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["bc", "--dataset", "logs/log_1.csv", "--steps", "3"],
        ["logs/log_1.csv", "logs/log_2.csv"],
        ["run", "--obs-file", "logs/log_1.csv", "logs/log_2.csv"],
        ["run", "--dataset"],
        [],
    ],
)
def test_other_arguments_stay(logs, arguments):
    assert join_files(arguments, {"--dataset"}) == arguments


def test_files_that_no_pattern_stands_for_are_refused(logs):
    with pytest.raises(typer.BadParameter, match="got 2 files that no single pattern matches, such as"):
        join_files(["--dataset", logs[0], logs[2]], {"--dataset"})


def test_train_check_and_split_take_unquoted_patterns(cli, logs, tmp_path):
    short = ["--steps", "2", "--set", "hidden_sizes=[4]", "--set", "log=none", "--quiet", "--output", tmp_path / "run"]
    result = cli("train", "bc", "--dataset", *logs, *short)
    assert result.exit_code == 0, result.output
    assert "dataset: logs/log_*.csv" in (tmp_path / "run" / "config.yaml").read_text()
    counted = [json.loads(cli("data", "check", *each, "--json").stdout)["rows"] for each in (logs, logs[:1])]
    assert counted[0] == 3 * counted[1]
    assert cli("data", "split", *logs, "--out", tmp_path / "parts").exit_code == 0
