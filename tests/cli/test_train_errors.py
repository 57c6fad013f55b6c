"""`train` and `resume`: user errors are one sentence and exit code 2, and change no files."""

from __future__ import annotations

import json

import pytest

from rl_training.algorithms import CATALOGUE
from rl_training.cli.options import whole_number


def test_a_user_error_beside_fresh_deletes_no_run(cli, cartpole, run, finished):
    assert cli(*cartpole, "--set", "batch_size=63", "--output", run, "--fresh").exit_code == 2
    assert json.loads(cli(*cartpole, "--output", run, "--json").stdout)["metrics"] == finished["metrics"]


def test_a_user_error_leaves_no_directory(cli, tmp_path):
    cli("train", "ppo", "CartPol-v1", "--output", tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["pppo", "CartPole-v1"],
            f"algo: must be one of {', '.join(sorted(CATALOGUE))} or module:Class, got 'pppo'; did you mean ppo?",
        ),
        (["ppo"], "ppo trains online and needs an environment; set env_id, for example CartPole-v1"),
        (
            ["iql"],
            "iql trains offline and needs a dataset; give --dataset FILE or a recipe, for example "
            "dataset: {kind: random, rows: 50000}",
        ),
        (
            ["ppo", "CartPol-v1"],
            "env_id 'CartPol-v1' not found. Did you mean 'CartPole-v1', 'CartPole-v0', 'phys2d/CartPole-v1'?",
        ),
        (
            ["ppo", "CartPole-v1", "--set", "lerning_rate=1"],
            "algo_kwargs.lerning_rate: unknown key; did you mean learning_rate?",
        ),
        (["ppo", "CartPole-v1", "--set", "gamma=2"], "algo_kwargs.gamma: must be less than or equal to 1, got 2"),
        (["ppo", "CartPole-v1", "--set", "gamma"], "an override must be KEY=VALUE, got 'gamma'"),
        (["ppo", "CartPole-v1", "--device", "gpu"], "device: must be auto, cpu, cuda or cuda:N, got 'gpu'"),
        (["ppo", "CartPole-v1", "--compile", "yes"], "compile: must be 'auto', 'on' or 'off', got 'yes'"),
        (
            ["ppo", "CartPole-v1", "--seeds", "4-0"],
            "--seeds must be increasing ranges of at most 1000 seeds, got '4-0'",
        ),
        (
            ["ppo", "CartPole-v1", "--dataset", "rows.npz"],
            "ppo trains online and takes no dataset; leave it out",
        ),
        (["iql", "Pendulum-v1", "--dataset", "/absent/log.npz"], "dataset file /absent/log.npz not found"),
        (
            ["iql/pendulun"],
            "no packaged config 'iql/pendulun'; did you mean iql/pendulum? (rl-training configs ls lists them)",
        ),
        (["absent.yaml"], "absent.yaml: no such file"),
        (
            ["iql", "Pendulum-v1", "--dataset", "{kind: random"],
            "--dataset: not YAML: expected ',' or '}', but got '<stream end>', line 1",
        ),
        (
            ["td3_bc", "CartPole-v1", "--dataset", "{kind: random, rows: 9}"],
            "td3_bc needs a Box action space, got Discrete; these accept it: bc, bcq, cql, iql, xql",
        ),
    ],
)
def test_a_user_error_ends_in_one_sentence_and_exit_code_2(cli, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    result = cli("train", *arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"error: {message}\n")


@pytest.mark.parametrize(
    "option", [["--steps", "0"], ["--seed", "-1"], ["--threads", "0"], ["--steps", "many"], ["--x"]]
)
def test_a_wrong_command_line_is_exit_code_2(cli, option):
    assert cli("train", "ppo", "CartPole-v1", *option).exit_code == 2


@pytest.mark.parametrize(("text", "number"), [("7", 7), ("100_000", 100_000), ("1e5", 100_000), ("2.5e1", 25)])
def test_numbers_of_steps_are_read_as_people_write_them(text, number):
    assert whole_number(text) == number


@pytest.mark.parametrize("text", ["0", "-5", "many", "1.5", "inf", "nan", "_", ""])
def test_other_numbers_of_steps_are_refused_with_an_example(cli, text):
    result = cli("train", "ppo", "CartPole-v1", "--steps", text)
    message = f"'--steps': {text!r} is not a whole number of at least 1, such as 100000 or 1e5\n"
    assert result.exit_code == 2
    assert result.stderr.endswith(message)


@pytest.mark.parametrize("command", ["train", "resume", "bench", "tune", "data collect"])
def test_every_command_that_trains_or_collects_reads_them_so(cli, command):
    result = cli(*command.split(), "--steps", "many")
    assert result.exit_code == 2
    assert "such as 100000 or 1e5" in result.stderr


def test_resume_of_no_run(cli, tmp_path):
    result = cli("resume", tmp_path / "absent")
    assert (result.exit_code, result.stderr) == (2, f"error: no run or checkpoint at {tmp_path}/absent\n")
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize(
    ("seed", "hint"),
    [("0-2", "; several seeds are --seeds 0-2"), ("0,2", "; several seeds are --seeds 0,2"), ("a", "")],
)
def test_a_seed_that_is_no_number_is_refused_with_the_option_for_several(cli, seed, hint):
    refused = cli("train", "ppo/cartpole", "--seed", seed)
    assert refused.exit_code == 2
    assert f"Invalid value for '--seed': {seed!r} is not a whole number of at least 0{hint}\n" in refused.stderr
