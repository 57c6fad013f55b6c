"""The form of numbers, tables and results."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rl_training.algorithms import ROWS as ALGORITHMS
from rl_training.cli.bench import played
from rl_training.cli.output import column_widths, print_facts, print_json, print_table, score, wrapped
from rl_training.messages import command, duration


def test_nan_and_infinity_are_null_in_json(capsys):
    print_json(
        {"metrics": {"loss": float("nan"), "entropy": 0.5}, "returns": [float("inf"), -1.0], "status": "finished"}
    )
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert json.loads(printed) == {
        "metrics": {"loss": None, "entropy": 0.5},
        "returns": [None, -1.0],
        "status": "finished",
    }


@pytest.mark.parametrize(("seconds", "text"), [(0.04, "0.04 s"), (89, "89 s"), (150, "2 min"), (9000, "2.5 h")])
def test_a_duration_has_the_unit_that_fits_it(seconds, text):
    assert duration(seconds) == text


def test_a_score_has_the_normalized_one_beside_it():
    evaluation = {"return_mean": 1000.0, "return_std": 50.0, "episodes": 10, "normalized_score": 31.35}
    assert score(evaluation) == "1000.0 ± 50.0 over 10 episodes, normalized score 31.4"
    whole = {**evaluation, "success_rate": 0.25}
    assert score(whole, seeds=2) == "1000.0 ± 50.0 over 10 episodes of 2 seeds, normalized score 31.4, success rate 25%"
    assert score({"return_mean": 9.0, "return_std": 0.0, "episodes": 1}) == "9.0 ± 0.0 over 1 episode"


@pytest.mark.parametrize(
    ("mean", "std", "text"),
    [
        (500.0, 0.0, "500.0 ± 0.0"), (0.7, 0.04, "0.7 ± 0.0"), (0.0, 0.0, "0.0 ± 0.0"), (0.03, 1.0, "0.0 ± 1.0"),
        (0.0004, 0.0, "0.0004 ± 0"), (-0.000333, 0.00012, "-0.00033 ± 0.00012"),
    ],
)  # fmt: skip
def test_small_returns_are_not_shown_as_zero(mean, std, text):
    assert score({"return_mean": mean, "return_std": std, "episodes": 2}).startswith(f"{text} over")
    for value in (mean, std):
        shown = played({"scores": [value]})
        assert (float(shown) == 0) == (value == 0)


def test_a_single_seed_has_no_deviation_over_seeds():
    assert score({"return_mean": 9.0, "return_std": 0.0, "episodes": 10}, seeds=1) == "9.0 over 10 episodes of 1 seed"


def test_a_command_to_copy_has_quotes_where_the_shell_needs_them():
    assert command("evaluate", Path("runs/a b"), "--ope", "logs/*.csv") == (
        "rl-training evaluate 'runs/a b' --ope 'logs/*.csv'"
    )
    assert command("train", "iql") == "rl-training train iql"


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
name   of     what it is
────────────────────────────────────
bc     data   the baseline that
              every result from data
              needs
ppo           the usual one, see
              runs/ppo
""",
        ),
    ],
)
def test_a_long_cell_wraps_between_words(capsys, monkeypatch, width, table):
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(COLUMNS, ROWS)
    rule, printed = re.compile("─+"), capsys.readouterr().out
    assert rule.sub("─", printed) == rule.sub("─", table.removeprefix("\n"))
    assert max(map(len, printed.splitlines())) <= width


def test_a_word_is_never_cut(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    run = "runs/a-directory-whose-name-alone-is-nearly-a-line"
    print_table(("seed", "return", "run"), [("0", "1.0", run)])
    assert f"0      1.0      {run}" in capsys.readouterr().out.splitlines()


def test_wide_characters_take_two_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    print_table(("列", "值"), [("温度", "二十"), ("t", "1")])
    assert [line for line in capsys.readouterr().out.splitlines() if "─" not in line] == [
        "列     值",
        "温度   二十",
        "t      1",
    ]


TWO_SENTENCES = [
    (
        "discrete_soft_actor_critic",
        "learns_from_a_replay_buffer of transitions and never forgets",
        "needs_continuous_actions or discrete ones, see the guide for details of each",
    ),
    ("bc", "data, data and more data that was recorded", "everything"),
]


@pytest.mark.parametrize("width", [50, 60, 80, 120])
def test_no_word_is_cut_where_two_columns_wrap(capsys, monkeypatch, width):
    columns = ("name", "what it learns from", "what it needs")
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(columns, TWO_SENTENCES)
    printed = capsys.readouterr().out
    given = [word for row in (columns, *TWO_SENTENCES) for cell in row for word in cell.split()]
    assert sorted(re.split(r"[\s─]+", printed.strip())) == sorted(given)
    assert max(map(len, printed.splitlines())) == width


def test_sentences_without_room_are_printed_below_their_rows(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    print_table(COLUMNS, [*ROWS, ("iql", "data", "")])
    assert capsys.readouterr().out.splitlines() == [
        "name   of",
        "    what it is",
        "───────────",
        "bc     data",
        "    the baseline that every",
        "    result from data needs",
        "ppo",
        "    the usual one, see",
        "    runs/ppo",
        "iql    data",
    ]


def test_lines_break_between_words_by_the_width_of_characters():
    assert wrapped("温度 二十 ab cd 度", 5) == ["温度", "二十", "ab cd", "度"]
    assert wrapped("task  of two", 4) == ["task", "of", "two"]


def test_the_column_shrinks_in_which_the_fewest_cells_wrap():
    actions = ["actions", "Box", "Box", "Box, Discrete, MultiDiscrete"]
    sentences = ["description", *["a sentence that is wide"] * 3]
    longer = [sentences[0], *[f"{each}, and then some" for each in sentences[1:]]]
    assert column_widths([actions, sentences], 99) == [28, 23]
    assert column_widths([actions, longer], 60) == [22, 38]
    assert column_widths([actions, longer], 50) == [13, 37]
    assert column_widths([longer, longer], 60) == [30, 30]
    assert column_widths([actions, sentences], 1) == [13, 23]  # short cells stay on one line


def test_output_to_a_file_has_one_line_a_row(capsys):
    print_table(COLUMNS, [("bc", "data", "word " * 100)])
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_a_fact_is_wrapped_and_a_command_is_not(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    command = "rl-training evaluate runs/mine --episodes 100"
    print_facts({"episodes": "57, of which 42 ended", "next": command})
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["episodes    57, of which 42", "            ended", f"next        {command}"]


@pytest.mark.parametrize("command", [("algos",), ("configs", "ls"), *(("explain", name) for name in ALGORITHMS)])
def test_a_narrow_terminal_is_enough(cli, monkeypatch, command):
    words = re.compile(r"[\s─]+")
    whole = sorted(words.split(cli(*command).stdout))
    for width in (60, 80):
        monkeypatch.setenv("COLUMNS", str(width))
        narrow = cli(*command).stdout
        assert [line for line in narrow.splitlines() if len(line) > width and "rl-training" not in line] == []
        assert sorted(words.split(narrow)) == whole
