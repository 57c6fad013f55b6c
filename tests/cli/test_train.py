"""`train` and `resume`: options, files and output."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

KEYS = {
    "status", "run_dir", "checkpoint", "best_checkpoint", "steps", "updates", "updates_per_second", "seconds",
    "metrics", "evaluation", "stop_reason", "env_restarts", "trained",
}  # fmt: skip
EARLIER = "This run finished earlier; nothing was trained. Use --fresh (fresh=True in Python) to train again.\n"


def test_the_result_as_json(finished):
    assert finished.keys() == KEYS
    # 256 steps are four rollouts of 64, each with ten passes over one minibatch.
    assert (finished["status"], finished["steps"], finished["updates"]) == ("finished", 256, 40)
    assert finished["evaluation"]["episodes"] == 2
    assert all(isinstance(value, float) for value in finished["metrics"].values())
    assert Path(finished["checkpoint"]).name == "step_000000256"
    assert Path(finished["best_checkpoint"]).is_dir()


def test_steps_end_at_the_first_boundary_after_them(cli, cartpole, tmp_path):
    result = cli(*cartpole, "--steps", "65", "--output", tmp_path / "run", "--json")
    assert json.loads(result.stdout)["steps"] == 128


def test_the_first_line_describes_the_training_and_the_last_the_next_command(cli, cartpole, tmp_path):
    result = cli(*cartpole, "--seed", "3", "--output", tmp_path / "run")
    assert result.stderr.splitlines()[0] == (
        "CartPole-v1: 4 numbers in, one of 2 actions out; ppo in 1 environment, cpu, 1 thread, seed 3, 256 steps"
    )
    facts = {line[:12].strip(): line[12:] for line in result.stdout.splitlines()}
    assert facts["finished"].startswith("256 steps, 40 updates (")
    assert facts["evaluation"].endswith("over 2 episodes")
    assert facts["run"] == str(tmp_path / "run")
    assert facts["checkpoint"] == str(tmp_path / "run" / "checkpoints" / "step_000000256")
    assert facts["next"] == f"rl-training evaluate {tmp_path / 'run'}"


def test_profile_reports_the_time_of_each_part(cli, cartpole, tmp_path):
    report = json.loads(cli(*cartpole, "--output", tmp_path / "json", "--profile", "--json").stdout)
    assert report.keys() == {*KEYS, "profile"}
    profile = report["profile"]
    assert sum(profile.values()) - profile["start"] == pytest.approx(report["seconds"], rel=0.2)
    printed = cli(*cartpole, "--output", tmp_path / "table", "--profile").stdout
    again = cli(*cartpole, "--output", tmp_path / "json", "--profile")
    assert again.stderr.splitlines()[-1].startswith("the run is already finished, so there is nothing to profile")
    parts = ["start", "env", "act", "collect", "sample", "update", "evaluate", "log", "checkpoint", "rest", "total"]
    assert [line.split()[0] for line in printed.splitlines()[-len(parts) :]] == parts


def test_profile_is_of_one_process(cli, cartpole, tmp_path):
    refused = cli(*cartpole, "--seeds", "0,1", "--output", tmp_path / "runs", "--profile")
    assert refused.exit_code != 0
    assert (
        "--profile measures one process, and seeds of ppo train in one process each; give one --seed" in refused.stderr
    )


def test_quiet_prints_only_the_result(cli, cartpole, tmp_path):
    assert cli(*cartpole, "--output", tmp_path / "run", "--quiet").stderr == ""


def test_repeating_the_command_prints_the_same_result(cli, cartpole, run, finished):
    again = cli(*cartpole, "--output", run, "--json")
    assert (again.exit_code, again.stderr) == (0, EARLIER)
    moved = json.loads(again.stdout.replace(str(run), finished["run_dir"]))
    assert finished["trained"]
    assert moved == {**finished, "trained": False}


@pytest.mark.usefixtures("curves")
def test_the_learning_curve_is_drawn(cli, cartpole, run):
    result = cli(*cartpole, "--output", run)
    assert f"curve       {run / 'curve.png'}" in result.stdout.splitlines()
    assert (run / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("curves")
def test_a_plot_that_fails_does_not_fail_the_run(cli, cartpole, run):
    (run / "curve.png").mkdir()
    result = cli(*cartpole, "--output", run)
    assert result.exit_code == 0
    sentence = result.stderr.removeprefix(EARLIER)
    assert sentence.startswith(f"{run / 'curve.png'} was not drawn: ")
    assert sentence.endswith("; the run is complete\n")
    assert "checkpoint" in result.stdout


def test_another_config_in_the_directory_is_refused_by_its_keys(cli, cartpole, run):
    result = cli(*cartpole, "--set", "gamma=0.5", "--seed", "1", "--output", run)
    assert result.exit_code == 2
    assert result.stderr == (
        f"error: {run} holds a run with a different config "
        "(seed: 0 there, 1 here; algo_kwargs.gamma: 0.99 there, 0.5 here). "
        "Continue it with its own config, choose another --output (output_dir in Python), "
        "or start over with --fresh (fresh=True in Python).\n"
    )


def test_another_algorithm_in_the_directory_is_refused_without_a_list_of_its_options(cli, run):
    error = cli("train", "dqn", "CartPole-v1", "--output", run).stderr
    assert "different config (algo: 'ppo' there, 'dqn' here; " in error
    assert "algo_kwargs" not in error


def test_more_steps_for_a_run_are_answered_with_resume(cli, cartpole, run):
    result = cli(*cartpole, "--steps", "512", "--output", run)
    assert result.exit_code == 2
    advice = f"extend it with `rl-training resume {run} --steps 512` (resume_training in Python), choose another"
    assert advice in result.stderr


def test_fresh_starts_over(cli, cartpole, run):
    result = cli(*cartpole, "--seed", "1", "--steps", "64", "--output", run, "--fresh", "--json")
    assert json.loads(result.stdout)["steps"] == 64
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step_000000064"]


def test_a_directory_of_other_files_is_left_alone(cli, cartpole, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    result = cli(*cartpole, "--output", tmp_path, "--fresh")
    assert (result.exit_code, result.stderr) == (
        2,
        f"error: {tmp_path} is not a run but contains files (thesis.tex, …); "
        "choose another --output (output_dir in Python)\n",
    )
    assert (tmp_path / "thesis.tex").exists()


def test_a_directory_of_seeds_names_the_option_that_continues_them(cli, cartpole, tmp_path):
    for seed in (0, 12):
        (tmp_path / f"seed_{seed}").mkdir()
        (tmp_path / f"seed_{seed}" / "config.yaml").write_text("")
    result = cli(*cartpole, "--output", tmp_path)
    assert result.stderr.endswith("(output_dir in Python); --seeds 0,12 continues its runs\n")


def test_resume_goes_beyond_the_end(cli, run):
    result = cli("resume", run, "--steps", "300", "--json")
    assert result.stderr.splitlines()[0].endswith("seed 0, 300 steps, resumed at 256")
    report = json.loads(result.stdout)
    assert (report.keys(), report["steps"], report["status"]) == (KEYS, 320, "finished")


def test_resume_of_a_finished_run_prints_its_result(cli, run, finished):
    for steps in ((), ("--steps", "100")):
        resumed = cli("resume", run, *steps, "--json")
        report = json.loads(resumed.stdout)
        ending = resumed.stderr.endswith("Pass --steps above 256 (total_timesteps in Python) to train it further.\n")
        assert (report["metrics"], report["trained"], ending) == (finished["metrics"], False, True)


def test_resume_takes_a_checkpoint_of_the_run(cli, run):
    result = cli("resume", run / "checkpoints" / "step_000000256", "--steps", "300", "--json")
    assert json.loads(result.stdout)["run_dir"] == str(run)


def test_a_packaged_config_with_another_environment_and_options(cli, tmp_path):
    result = cli(
        "train", "bc/pendulum", "MountainCarContinuous-v0", "--set", "dataset.rows=64", "--steps", "2", "--seed", "5",
        "--threads", "1", "--device", "cpu", "--compile", "off", "--set", "eval_interval=0",
        "--output", tmp_path / "run",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert result.stderr.splitlines()[0] == (
        "MountainCarContinuous-v0: 2 numbers in, 1 number out; bc from 64 rows of a random policy, cpu, 1 thread, "
        "seed 5, 2 updates"
    )


def test_online_steps_are_printed_after_the_updates(cli, tmp_path):
    result = cli(
        "train", "iql/pendulum", "--set", "dataset.rows=64", "--steps", "2", "--online-steps", "3",
        "--set", "eval_interval=0", "--set", "batch_size=3", "--output", tmp_path / "run",
    )  # fmt: skip
    assert result.stderr.splitlines()[0].endswith("seed 0, 2 updates, then 3 steps online")


def test_a_config_file_by_its_path(cli, tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "{algo: bc, env_id: Pendulum-v1, total_timesteps: 2, eval_interval: 0, dataset: {kind: random, rows: 64}}"
    )
    result = cli("train", tmp_path / "mine.yaml", "--output", tmp_path / "run", "--json")
    assert json.loads(result.stdout)["updates"] == 2


def test_a_dataset_file_alone(cli, tmp_path):
    import numpy as np

    zeros = np.zeros((8, 3), np.float32)
    np.savez(
        tmp_path / "rows.npz", obs=zeros, next_obs=zeros, actions=zeros[:, :1], rewards=zeros[:, 0], dones=zeros[:, 0]
    )
    result = cli(
        "train", "bc", "--dataset", tmp_path / "rows.npz", "--steps", "2", "--set", "batch_size=4",
        "--allow", "no_episode_end", "--output", tmp_path / "run",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    warning, introduction = result.stderr.splitlines()[:2]
    assert warning.startswith("possible problem in the dataset: ")  # no ends
    assert introduction == f"bc from {tmp_path / 'rows.npz'}, cpu, 1 thread, seed 0, 2 updates"
    last = f"next        rl-training evaluate {tmp_path / 'run'} --ope TEST  # episodes that it was not trained on"
    assert result.stdout.splitlines()[-1].startswith(last)


def test_options_for_reading_a_file_are_stored(cli, tmp_path):
    import numpy as np

    from rl_training.experiment.config.train_config import load_config

    steps = np.arange(9.0)[:, None]
    np.savez(tmp_path / "rows.npz", state=steps[:-1], torque=np.full((8, 1), 3.0), reward=np.arange(8))
    result = cli(
        "train", "bc", "--dataset", tmp_path / "rows.npz", "--columns", "obs=state", "--columns", "actions=torque",
        "--action-range", "-4,4", "--allow", "no_episode_end", "--steps", "2", "--set", "batch_size=4",
        "--output", tmp_path / "run", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    config = load_config(str(tmp_path / "run" / "config.yaml"))
    assert config["dataset_columns"] == {"obs": "state", "actions": "torque"}
    assert (config["action_range"], config["allow"]) == ([-4, 4], ["no_episode_end"])


TALKATIVE = """
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

class Talkative(CartPoleEnv):
    def step(self, action):
        print("here I am")
        return super().step(action)

gym.register("Talkative-v0", Talkative, max_episode_steps=20)
"""


def test_json_stands_alone_on_stdout_whatever_an_environment_prints(cartpole, tmp_path, monkeypatch, start_command):
    (tmp_path / "talkative.py").write_text(TALKATIVE)
    # The worker prints as it collects, this process as it evaluates.
    command = [argument.replace("CartPole-v1", "talkative:Talkative-v0") for argument in cartpole]
    monkeypatch.syspath_prepend(tmp_path)
    files = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start_command(*map(str, command), "--set", "env_workers=1", "--json", cwd=tmp_path, **files) as process:
        printed, errors = process.communicate(timeout=100)
    assert json.loads(printed)["status"] == "finished"
    assert errors.count("here I am") > 256


def test_progress_is_shown_beside_json_unless_it_is_to_be_quiet(cli, cartpole, tmp_path, monkeypatch):
    monkeypatch.setattr("rl_training.runtime.callbacks.progress.LINE_SECONDS", 0.0)
    result = cli(*cartpole, "--output", tmp_path / "shown", "--json")
    assert "step 256 of 256" in result.stderr
    assert json.loads(result.stdout)["status"] == "finished"
    assert not cli(*cartpole, "--output", tmp_path / "quiet", "--json", "--quiet").stderr


def test_a_run_that_was_never_evaluated_can_be(cli, cartpole, tmp_path):
    result = cli(*cartpole, "--set", "eval_interval=0", "--output", tmp_path / "run")
    assert f"next        rl-training evaluate {tmp_path / 'run'}\n" in result.stdout
    assert cli("evaluate", tmp_path / "run", "--episodes", 1).exit_code == 0
