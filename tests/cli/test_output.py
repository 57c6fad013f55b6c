"""How numbers and results are put."""

from __future__ import annotations

import json

import pytest

from rl_training.cli.output import duration, print_json, score


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
