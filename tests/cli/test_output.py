"""How numbers and results are put."""

from __future__ import annotations

import json
import re

import pytest

from rl_training.cli.output import duration, print_facts, print_json, print_table, score


def test_what_json_has_no_word_for_is_null(capsys):
    print_json(
        {"metrics": {"loss": float("nan"), "entropy": 0.5}, "returns": [float("inf"), -1.0], "status": "finished"}
    )
    told = capsys.readouterr().out
    assert told.count("\n") == 1
    assert json.loads(told) == {
        "metrics": {"loss": None, "entropy": 0.5},
        "returns": [None, -1.0],
        "status": "finished",
    }


@pytest.mark.parametrize(("seconds", "text"), [(0.04, "0.0 s"), (89, "89.0 s"), (150, "2 min"), (9000, "2.5 h")])
def test_a_duration_has_the_unit_that_fits_it(seconds, text):
    assert duration(seconds) == text


def test_a_score_has_the_normalized_one_beside_it():
    evaluation = {"return_mean": 1000.0, "return_std": 50.0, "episodes": 10, "normalized_score": 31.35}
    assert score(evaluation) == "1000.0 ± 50.0 over 10 episodes, normalized score 31.4"
    assert score({"return_mean": 9.0, "return_std": 0.0, "episodes": 1}) == "9.0 ± 0.0 over 1 episode"


COLUMNS = ("name", "of", "what it is")
ROWS = [("bc", "data", "the baseline that every result from data needs"), ("ppo", "", "the usual one, see runs/ppo")]


@pytest.mark.parametrize(
    ("width", "table"),
    [
        (
            58,
            """
name   of     what it is
──────────────────────────────────────────────────────────
bc     data   the baseline that every result from data
              needs
ppo           the usual one, see runs/ppo
""",
        ),
        (
            36,
            """
name   of
    what it is
────────────────────────────────────
bc     data
    the baseline that every result
    from data needs
ppo
    the usual one, see runs/ppo
""",
        ),
    ],
)
def test_a_column_without_room_for_a_sentence_goes_beneath(capsys, monkeypatch, width, table):
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(COLUMNS, ROWS)
    rule, told = re.compile("─+"), capsys.readouterr().out
    assert rule.sub("─", told) == rule.sub("─", table.removeprefix("\n"))
    assert max(map(len, told.splitlines())) <= width


def test_a_word_is_never_cut(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    run = "runs/a-directory-whose-name-alone-is-nearly-a-line"
    print_table(("seed", "return", "run"), [("0", "1.0", run)])
    assert f"    {run}" in capsys.readouterr().out.splitlines()


def test_what_goes_to_a_file_has_a_line_for_each_row(capsys):
    print_table(COLUMNS, [("bc", "data", "word " * 100)])
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_a_fact_is_wrapped_and_a_command_is_not(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    command = "rl-training evaluate runs/mine --episodes 100"
    print_facts({"episodes": "57, of which 42 ended", "next": command})
    told = capsys.readouterr().out.splitlines()
    assert told == ["episodes    57, of which 42", "            ended", f"next        {command}"]


@pytest.mark.parametrize("command", [("algos",), ("explain", "ppo"), ("explain", "dreamer"), ("configs", "ls")])
def test_eighty_columns_are_enough(cli, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    narrow = cli(*command).stdout
    assert [line for line in narrow.splitlines() if len(line) > 80 and "rl-training" not in line] == []
    monkeypatch.delenv("COLUMNS")
    words = re.compile(r"[\s─]+")
    assert sorted(words.split(narrow)) == sorted(words.split(cli(*command).stdout))
