"""`evaluate` from a run or a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rl_training.data import save_npz
from rl_training.runtime.recipes import roll_dataset


def test_evaluate_as_json(cli, finished):
    printed = json.loads(cli("evaluate", finished["run_dir"], "--episodes", "3", "--seed", "7", "--json").stdout)
    assert printed.keys() == {"checkpoint", "return_mean", "return_std", "returns", "lengths", "episodes"}
    assert (len(printed["returns"]), len(printed["lengths"]), printed["episodes"]) == (3, 3, 3)
    assert printed["returns"] == printed["lengths"]  # CartPole pays 1 a step
    assert printed["return_mean"] == pytest.approx(sum(printed["returns"]) / 3)


def test_the_same_seed_plays_the_same_episodes(cli, finished):
    first, again, other = (
        cli("evaluate", finished["checkpoint"], "--episodes", "3", "--seed", seed, "--json").stdout
        for seed in (7, 7, 8)
    )
    assert first == again
    assert first != other


def test_best_takes_the_best_checkpoint(cli, finished):
    printed = json.loads(cli("evaluate", finished["run_dir"], "--best", "--episodes", "1", "--json").stdout)
    assert printed["checkpoint"] == finished["best_checkpoint"]


def test_evaluate_by_draws(cli, finished):
    """Repeatable, and not what the likeliest actions come to."""
    asked = ("evaluate", finished["run_dir"], "--episodes", "4", "--json")
    still, drawn, again = (json.loads(cli(*asked, *more).stdout) for more in ([], ["--stochastic"], ["--stochastic"]))
    assert drawn == again
    assert drawn["returns"] != still["returns"]
    assert json.loads(cli(*asked, "--deterministic").stdout) == still


def test_evaluate_for_people(cli, finished):
    lines = cli("evaluate", finished["run_dir"], "--episodes", "2").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["return", "lengths", "checkpoint"]


def test_an_evaluation_in_which_a_wrapper_scales_actions_is_refused(cli, pendulum):
    wrapper = "env_wrappers=[{wrapper: gymnasium.wrappers:RescaleAction, min_action: -1, max_action: 1}]"
    ended = cli("evaluate", pendulum, "--set", wrapper)
    assert ended.exit_code == 2
    assert "has the lower action bounds [-1.0], but the agent was trained for [-2.0]" in " ".join(ended.stderr.split())


def test_the_environment_is_changed_for_one_evaluation(cli, finished):
    asked = ("evaluate", finished["run_dir"], "--json")
    before = json.loads(cli(*asked, "--episodes", 2).stdout)
    changed = json.loads(
        cli(*asked, "--set", "env_kwargs.max_episode_steps=5", "--set", "eval_episodes=3").stdout,
    )
    assert changed["lengths"] == [5, 5, 5]
    wrapper = "env_wrappers=[{wrapper: gymnasium.wrappers:TimeLimit, max_episode_steps: 4}]"
    assert json.loads(cli(*asked, "--set", wrapper, "--episodes", 1).stdout)["lengths"] == [4]
    assert json.loads(cli(*asked, "--episodes", 2).stdout) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "gamma=0.9"], "--set gamma: this command sets only env_kwargs, env_wrappers, eval_"),
        (["--set", "env_id=Acrobot-v1"], "--set env_id: this command sets only env_kwargs"),
        (["--set", "env_kwargs.nope=1"], "env_kwargs: CartPole-v1 has no option 'nope'; remove or correct it"),
        (["--set", "env_wrappers=nope"], "env_wrappers"),
        (["--video", "a.avi"], "a video must end in .mp4 or .gif, got a.avi"),
        (["--video-episodes", "2"], "--video-episodes needs --video FILE"),
        (["--ope", "x.npz", "--video", "a.mp4"], "--ope runs no episodes: remove --video"),
        (["--ope", "x.npz", "--set", "env_kwargs.a=1"], "--ope runs no episodes: remove --set"),
    ],
)
def test_a_wrong_option_of_an_evaluation_is_one_sentence(cli, finished, arguments, message):
    result = cli("evaluate", finished["run_dir"], *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_video_is_written_and_the_figures_stay(cli, finished, tmp_path):
    pytest.importorskip("PIL")
    pytest.importorskip("pygame")
    asked = ("evaluate", finished["run_dir"], "--episodes", 2, "--json")
    file = tmp_path / "cartpole.gif"
    filmed = json.loads(cli(*asked, "--video", file, "--video-episodes", 1).stdout)
    assert filmed.pop("video") == str(file)
    assert filmed == json.loads(cli(*asked).stdout)
    assert file.read_bytes().startswith(b"GIF89a")


@pytest.mark.parametrize("command", [["evaluate"], ["predict", "--obs", "[0, 0, 0, 0]"]])
def test_a_run_that_is_not_there(cli, tmp_path, command):
    result = cli(*command, tmp_path / "absent")
    assert (result.exit_code, result.stderr) == (2, f"error: no run or checkpoint at {tmp_path}/absent\n")


def test_a_directory_that_is_no_run(cli, tmp_path):
    result = cli("evaluate", tmp_path)
    assert (result.exit_code, result.stderr) == (
        2,
        f"error: {tmp_path} is neither a checkpoint nor a run with checkpoints\n",
    )


def test_a_folder_of_runs_names_one_of_them(cli, finished):
    run = Path(finished["run_dir"])
    not_a_run = "is neither a checkpoint nor a run with checkpoints"
    folder, inside = cli("evaluate", run.parent), cli("evaluate", run / "checkpoints")
    assert folder.stderr == f"error: {run.parent} {not_a_run}; use one of its runs, such as {run}\n"
    assert inside.stderr == f"error: {run}/checkpoints {not_a_run}; use its run {run}\n"


def test_a_folder_of_benches_names_a_run_below_it(cli, tmp_path):
    (tmp_path / "bench" / "cell" / "seed_0" / "checkpoints").mkdir(parents=True)
    assert cli("evaluate", tmp_path).stderr.endswith(f"such as {tmp_path}/bench/cell/seed_0\n")


def test_best_of_a_run_that_was_never_evaluated(cli, pendulum):
    result = cli("evaluate", pendulum, "--best")
    assert (result.exit_code, result.stderr) == (
        2,
        f"error: the run {pendulum} has no best checkpoint because it was never evaluated; remove --best\n",
    )


def test_best_of_a_single_checkpoint(cli, finished):
    path = Path(finished["checkpoint"])
    result = cli("evaluate", path, "--best")
    assert (result.exit_code, result.stderr) == (
        2,
        f"error: --best needs a run, but {path} is a checkpoint\n",
    )


def test_no_episodes_is_a_wrong_command_line(cli, finished):
    assert cli("evaluate", finished["run_dir"], "--episodes", "0").exit_code == 2


@pytest.fixture(scope="module")
def logs(tmp_path_factory) -> str:
    """Random steps of Pendulum: eight episodes, each cut after 50 steps."""
    path = tmp_path_factory.mktemp("data") / "logs.npz"
    save_npz(roll_dataset("Pendulum-v1", rows=400), path)
    return str(path)


@pytest.fixture(scope="module")
def offline(cli, logs, tmp_path_factory) -> str:
    """An agent that never saw an environment, and standardises what it sees."""
    run = tmp_path_factory.mktemp("runs") / "offline"
    small = ["--set", "hidden_sizes=[8]", "--set", "normalize_obs=true", "--steps", "4"]
    assert cli("train", "iql", "--dataset", logs, *small, "--output", run, "--quiet").exit_code == 0
    return str(run)


def test_an_estimate_from_data_as_json(cli, offline, logs):
    asked = cli("evaluate", offline, "--ope", logs, "--updates", "20", "--gamma", "0.9", "--json")
    printed = json.loads(asked.stdout)
    assert printed.keys() == {
        "checkpoint", "dataset", "estimate", "interval", "behaviour_return", "behaviour_interval",
        "behaviour_undiscounted_return", "gamma", "episodes", "updates", "members", "unseen_actions", "warnings",
        "discount", "shared_episodes", "notes",
    }  # fmt: skip
    assert (printed["dataset"], printed["gamma"], printed["episodes"], printed["updates"]) == (logs, 0.9, 8, 20)
    assert printed["interval"][0] < printed["estimate"] < printed["interval"][1]
    assert printed["behaviour_interval"][0] < printed["behaviour_return"] < printed["behaviour_interval"][1] < 0
    assert [warning.partition(",")[0] for warning in printed["warnings"]] == [
        "the run was trained on these data",
        "the interval rests on only 8 episodes: collect more",
    ]


def test_an_estimate_from_data_for_people(cli, offline, logs):
    lines = cli("evaluate", offline, "--ope", logs, "--updates", "5").stdout.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["estimate", "behaviour", "unseen", "checkpoint"]
    assert "discounted by 0.99, in the rewards of the data" in lines[0]
    assert "95% interval" in lines[0]
    assert lines[-1].startswith("caution     the estimate does not cover states that are missing in the data")


def test_estimates_of_one_seed_repeat(cli, offline, logs):
    first, again, other = (
        cli("evaluate", offline, "--ope", logs, "--updates", "5", "--seed", seed, "--json").stdout for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_the_data_are_scaled_by_the_bounds_of_the_agents_environment(cli, pendulum, logs):
    asked = cli("evaluate", pendulum, "--ope", logs, "--updates", "1", "--json")
    assert asked.exit_code == 0, asked.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ope", "absent.npz"], "absent.npz"),
        (["--ope", "LOGS", "--gamma", "1"], "gamma: must be less than 1, got 1.0"),
        (["--ope", "LOGS", "--episodes", "3"], "--ope runs no episodes: remove --episodes"),
        (["--ope", "LOGS", "--stochastic"], "--ope runs no episodes: remove --stochastic"),
        (["--updates", "3"], "--updates needs --ope DATASET, the estimate from data"),
        (["--gamma", "0"], "--gamma needs --ope DATASET, the estimate from data"),
        (["--columns", "obs=x"], "--columns needs --ope DATASET, the estimate from data"),
        ([], "this agent was trained from data and has no environment to evaluate it in; use --ope DATASET"),
    ],
)
def test_a_wrong_call_of_evaluate_is_refused(cli, offline, logs, arguments, message):
    result = cli("evaluate", offline, *(logs if each == "LOGS" else each for each in arguments))
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_data_are_read_by_the_runs_names_unless_others_are_given(cli, logs, tmp_path):
    with np.load(logs) as stored:
        np.savez(tmp_path / "own.npz", **{"x" if name == "obs" else name: stored[name] for name in stored.files})
    small = ["--steps", "2", "--set", "hidden_sizes=[8]", "--quiet", "--output", tmp_path / "run"]
    assert cli("train", "bc", "--dataset", tmp_path / "own.npz", "--columns", "obs=x", *small).exit_code == 0
    judged = ["evaluate", tmp_path / "run", "--updates", "1", "--json", "--ope"]
    assert cli(*judged, tmp_path / "own.npz").exit_code == 0
    assert "has no column 'x' to use as obs" in cli(*judged, logs).stderr
    assert cli(*judged, logs, "--columns", "obs=obs").exit_code == 0


def test_data_of_another_environment_are_refused(cli, finished, logs):
    result = cli("evaluate", finished["run_dir"], "--ope", logs)
    assert result.exit_code == 2
    assert "obs" in result.stderr
