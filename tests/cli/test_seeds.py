"""Several seeds of one config."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rl_training.cli.seeds import mean_evaluation, parse_seeds, seeds_name, summary
from rl_training.experiment.run import TrainResult

# Seeds of a learner from data train in this process.
CLONING = ["train", "bc", "Pendulum-v1", "--dataset", "{kind: random, rows: 64}", "--steps", "2",
           "--set", "hidden_sizes=[8]", "--set", "eval_interval=2", "--set", "eval_episodes=1"]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "seeds"), [("0-4", [0, 1, 2, 3, 4]), ("0,2,5", [0, 2, 5]), ("7", [7]), ("0-1, 9", [0, 1, 9])]
)
def test_seeds_are_ranges_and_lists(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "-1", "4-", "4-0", "1,1", "0-2,2", "0-1000", "0.5", "1e3"])
def test_other_seeds_are_refused(text):
    with pytest.raises(ValueError, match="--seeds must"):
        parse_seeds(text)


def test_the_name_of_a_directory_for_several_seeds():
    assert [seeds_name([0, 1, 2]), seeds_name([0, 2, 5]), seeds_name([3])] == ["0-2", "0_2_5", "3"]


def result(status: str, *, steps: int, return_mean: float) -> TrainResult:
    evaluation = {
        "return_mean": return_mean,
        "return_std": 9.0,
        "returns": [return_mean],
        "lengths": [4],
        "episodes": 1,
    }
    return TrainResult(
        Path(f"d/seed_{steps}"), None, {"loss": float(steps)}, status=status, steps=steps, updates=2 * steps,
        updates_per_second=10.0, seconds=1.0, evaluation=evaluation,
    )  # fmt: skip


def test_the_whole_adds_work_and_averages_scores():
    whole = summary(
        [1, 3], [result("finished", steps=1, return_mean=10.0), result("finished", steps=3, return_mean=30.0)]
    )
    assert (whole["steps"], whole["updates"], whole["seconds"]) == (1 + 3, 2 + 6, 1.0)
    assert whole["updates_per_second"] == 10.0 + 10.0
    assert whole["metrics"] == {"loss": 2.0}
    evaluation = whole["evaluation"]
    # 20 ± 10: each seed is 10 away from the mean of the two.
    assert (evaluation["return_mean"], evaluation["return_std"], evaluation["returns"]) == (20.0, 10.0, [10.0, 30.0])
    assert [run["seed"] for run in whole["runs"]] == [1, 3]


@pytest.mark.parametrize(
    ("statuses", "whole"),
    [
        (["finished", "finished"], "finished"),
        (["finished", "early_stop"], "early_stop"),
        (["early_stop", "stopped"], "stopped"),
        (["finished", "stopped"], "stopped"),
    ],
)
def test_the_whole_is_finished_when_all_are(statuses, whole):
    results = [result(status, steps=1, return_mean=0.0) for status in statuses]
    assert summary([0, 1], results)["status"] == whole


def test_a_seed_that_was_not_evaluated_leaves_no_mean():
    assert mean_evaluation([{"return_mean": 1.0}, None]) is None


def test_each_seed_has_its_own_run_in_the_output_directory(cli, tmp_path):
    result = cli(*CLONING, "--seeds", "0,2", "--output", tmp_path / "both", "--quiet", "--json")
    report = json.loads(result.stdout)
    assert report["run_dir"] == str(tmp_path / "both")
    assert [(run["seed"], run["run_dir"]) for run in report["runs"]] == [
        (0, str(tmp_path / "both" / "seed_0")),
        (2, str(tmp_path / "both" / "seed_2")),
    ]
    assert all(Path(run["checkpoint"]).is_dir() for run in report["runs"])
    assert report["evaluation"]["returns"] == [run["evaluation"]["return_mean"] for run in report["runs"]]


def test_without_an_output_the_directory_is_named_after_the_seeds(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = cli(*CLONING, "--set", "eval_interval=0", "--seeds", "0-1", "--quiet")
    assert [path.name for path in sorted((tmp_path / "runs" / "bc-Pendulum-v1-s0-1").iterdir())] == [
        "seed_0",
        "seed_1",
    ]
    assert result.stdout.splitlines()[0].split() == ["seed", "status", "return", "run"]


def test_the_introduction_names_the_seeds_and_the_updates_of_each(cli, tmp_path):
    result = cli(*CLONING, "--set", "eval_interval=0", "--seeds", "0,2", "--output", tmp_path / "both")
    assert re.search(r"1 thread, seeds 0, 2, \d+ updates each\n", result.stderr)
    result = cli(*CLONING, "--set", "eval_interval=0", "--seeds", "0,2-3", "--output", tmp_path / "both")
    assert re.search(r"1 thread, 1 of seeds 0, 2, 3, \d+ updates each\n", result.stderr)


def test_seed_and_seeds_exclude_each_other(cli, cartpole, tmp_path):
    result = cli(*cartpole, "--seed", "1", "--seeds", "0-2", "--output", tmp_path / "run")
    assert (result.exit_code, result.stderr) == (2, "error: give --seed or --seeds, not both\n")


@pytest.mark.usefixtures("forked_jobs")
def test_a_user_error_in_processes_is_the_one_sentence_of_a_single_seed(cli, cartpole, tmp_path, capfd):
    command = [*cartpole, "--set", "env_id=CartPol-v1", "--quiet"]
    alone = cli(*command, "--output", tmp_path / "one")
    both = cli(*command, "--seeds", "0-1", "--output", tmp_path / "two")
    assert (both.exit_code, both.stderr) == (2, alone.stderr)
    assert both.stderr.startswith("error: env_id 'CartPol-v1' not found")
    assert capfd.readouterr().err == ""  # nor do the processes say more
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("forked_jobs")
def test_a_failure_in_the_process_of_a_seed_names_the_seed(cli, cartpole, tmp_path):
    result = cli(*cartpole, "--set", "learning_rate=1e30", "--seeds", "0-1", "--output", tmp_path, "--quiet")
    assert (result.exit_code, result.stderr[:14]) == (1, "error: seed 0:")
    assert "NaN or infinite" in result.stderr


@pytest.mark.usefixtures("forked_jobs")
@pytest.mark.parametrize(
    ("in_processes", "there"),
    [(False, []), (False, ["all"]), (False, ["all", "all/seed_0", "all/seed_1"]), (True, ["all", "all/seed_0"])],
)
def test_a_user_error_leaves_no_new_directory_of_the_seeds(cli, cartpole, tmp_path, in_processes, there):
    for name in there:
        (tmp_path / name).mkdir()
    command = [*(cartpole if in_processes else CLONING), "--set", "env_kwargs.foo=1"]
    result = cli(*command, "--seeds", "0-1", "--output", tmp_path / "all")
    assert (result.exit_code, sorted(tmp_path.glob("**/*"))) == (2, [tmp_path / name for name in there])
