"""From a log in a CSV file to an agent, with no environment anywhere."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import pytest

NAMES = ["x", "speed", "push", "reward", "episode", "is_terminal"]
COLUMNS = ["--columns", "obs=x,speed", "--columns", "actions=push"]
SMALL = ["--steps", "4", "--set", "hidden_sizes=[8]", "--quiet"]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A cart pushed at random: by an amount from -3 to 3, or in one of three ways."""
    folder = tmp_path_factory.mktemp("logs")
    return {
        "box": write(folder / "amounts.csv", lambda: round(random.uniform(-3, 3), 4)),
        "discrete": write(folder / "choices.csv", lambda: random.randrange(3)),
    }


def write(path: Path, draw) -> Path:
    random.seed(0)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(NAMES)
        for episode in range(8):
            x, speed = random.uniform(-1, 1), 0.0
            for step in range(12):
                push = draw()
                rows.writerow([round(x, 4), round(speed, 4), push, round(-x * x, 4), episode, int(step == 11)])
                speed += 0.1 * push
                x += 0.2 * speed
    return path


@pytest.mark.parametrize(
    ("kind", "algo"),
    [("box", "bc"), ("box", "iql"), ("box", "td3_bc"), ("box", "cql"), ("discrete", "bc"), ("discrete", "cql")],
)
def test_from_a_csv_file_to_actions(cli, logs, tmp_path, kind, algo):
    log, bounds = logs[kind], ["--action-range", "-3,3"] if kind == "box" else []
    checked = cli("data", "check", log, *COLUMNS, *bounds, "--json")
    assert (checked.exit_code, json.loads(checked.stdout)["transitions"]) == (0, 96), checked.stdout

    trained = cli("train", algo, "--dataset", log, *COLUMNS, *bounds, *SMALL, "--output", tmp_path / "run")
    assert trained.exit_code == 0, trained.stderr
    assert f"next        rl-training evaluate {tmp_path}/run --ope TEST  # episodes that" in trained.stdout

    judged = cli("evaluate", tmp_path / "run", "--ope", log, "--updates", "4", "--json")
    assert judged.exit_code == 0, judged.stderr
    assert json.loads(judged.stdout)["episodes"] == 8

    asked = cli("predict", tmp_path / "run", "--obs", "[[0.5, 0], [-0.5, 0]]", "--json")
    actions = json.loads(asked.stdout)["actions"]
    assert len(actions) == 2
    assert all(action in (0, 1, 2) if kind == "discrete" else -3 <= action[0] <= 3 for action in actions), actions


def test_training_says_that_nothing_is_evaluated_and_what_is_left_to_do(cli, logs, tmp_path):
    command = ["train", "bc", "--dataset", logs["discrete"], *COLUMNS, *SMALL[:-1], "--output", tmp_path / "run"]
    assert "no environment, so there are no evaluations during training" in cli(*command).stderr


def test_evaluating_without_data_says_what_to_give(cli, logs, tmp_path):
    cli("train", "bc", "--dataset", logs["discrete"], *COLUMNS, *SMALL, "--output", tmp_path / "run")
    result = cli("evaluate", tmp_path / "run")
    assert result.exit_code == 2
    assert "use --ope DATASET to estimate its return from data" in result.stderr


def test_a_log_whose_columns_cannot_be_guessed_says_how_to_name_them(cli, logs):
    result = cli("data", "check", logs["box"])
    assert result.exit_code == 1
    assert "name the columns with --columns, such as obs=x,speed,push" in result.stdout
