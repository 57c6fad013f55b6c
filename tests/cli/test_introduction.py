"""Notes at the start of training: updates per step, whole rollouts, returns of Atari games."""

from __future__ import annotations

import json

import pytest

from rl_training.cli.introduction import atari_returns
from rl_training.cli.train import chosen_options
from rl_training.experiment.config.train_config import load_config, parse_config


@pytest.mark.parametrize(
    ("algo", "env_id", "options", "line"),
    [
        ("dqn", "CartPole-v1", ["num_envs=4", "learning_starts=8"],
         "4 environments: one update in 4 environment steps, as in Stable-Baselines3, instead of one in 1 with a "
         "single environment; updates_per_collect=4 keeps the ratio"),
        ("dqn", "CartPole-v1", ["num_envs=1", "learning_starts=8"], None),
        ("dqn", "CartPole-v1", ["num_envs=4", "learning_starts=8", "updates_per_collect=2"], None),  # chosen
        ("ppo", "CartPole-v1", ["num_envs=4", "num_steps=8", "batch_size=8"], None),
    ],
)  # fmt: skip
def test_more_environments_mean_fewer_updates_per_step_and_that_is_printed_once(
    cli, tmp_path, algo, env_id, options, line
):
    settings = [part for each in [*options, "hidden_sizes=[8]", "eval_interval=0"] for part in ("--set", each)]
    printed = cli("train", algo, env_id, "--steps", 16, *settings, "--output", tmp_path / "run").stderr.splitlines()
    assert [each for each in printed if "one update in" in each] == ([] if line is None else [line])


@pytest.mark.parametrize("chosen", [True, False])
def test_a_config_file_that_sets_the_updates_has_chosen_them_and_a_packaged_config_has_not(cli, tmp_path, chosen):
    options = {"updates_per_collect": 2} if chosen else {}
    small = {"learning_starts": 8, "hidden_sizes": [8], **options}
    config = {"algo": "dqn", "env_id": "CartPole-v1", "total_timesteps": 16, "eval_interval": 0, "algo_kwargs": small}
    (tmp_path / "mine.yaml").write_text(json.dumps({**config, "num_envs": 4}))
    result = cli("train", tmp_path / "mine.yaml", "--output", tmp_path / "run")
    assert ("keeps the ratio" in result.stderr) == (not chosen)


def test_the_updates_of_a_packaged_config_are_not_chosen_by_the_user():
    assert "updates_per_collect" in load_config("dqn/cartpole")["algo_kwargs"]
    assert list(chosen_options("dqn/cartpole", ["num_envs=4", "batch_size=8"])) == ["batch_size"]
    assert list(chosen_options("dqn", [])) == []


def test_a_resumed_run_does_not_repeat_the_advice_on_updates(cli, tmp_path):
    options = ["num_envs=4", "learning_starts=8", "hidden_sizes=[8]", "eval_interval=0"]
    settings = [part for each in options for part in ("--set", each)]
    train = ("train", "dqn", "CartPole-v1", *settings, "--output", tmp_path / "run", "--steps", 16)
    assert "keeps the ratio" in cli(*train).stderr
    resumed = cli("resume", tmp_path / "run", "--steps", 32)
    assert "resumed at 16" in resumed.stderr
    assert "keeps the ratio" not in resumed.stderr


@pytest.mark.parametrize(
    ("env_id", "options", "note"),
    [
        ("ALE/Pong-v5", {}, "end with each life and have clipped rewards"),
        ("ALE/Pong-v5", {"clip_rewards": False}, "end with each life"),
        ("ALE/Pong-v5", {"clip_rewards": False, "terminal_on_life_loss": False}, None),
        ("ALE/Pong-v5", {"preprocess": False}, None),
        ("CartPole-v1", {}, None),
    ],
)
def test_how_the_returns_of_atari_training_differ_from_evaluations_is_printed(env_id, options, note):
    config = parse_config({"algo": "ppo", "env_id": env_id, "env_kwargs": options})
    expected = f"training episodes {note}; evaluations are whole games with raw rewards"
    assert atari_returns(config) == (expected if note else None)


@pytest.mark.parametrize(("algo", "steps", "taken"), [("ppo", 20, 32), ("ppo", 30, 32), ("dqn", 9, 10)])
def test_a_budget_that_whole_rollouts_exceed_is_reported(cli, tmp_path, algo, steps, taken):
    options = ["num_envs=2", "hidden_sizes=[8]", "eval_interval=0"]
    options += ["num_steps=8", "batch_size=8"] if algo == "ppo" else ["learning_starts=8"]
    settings = [part for each in options for part in ("--set", each)]
    result = cli("train", algo, "CartPole-v1", "--steps", steps, *settings, "--output", tmp_path / "run")
    line = f"a rollout of 16 steps (num_steps * num_envs) is not cut: the run takes {taken} steps"
    assert (line in result.stderr.splitlines()) == (algo == "ppo" and taken >= 1.1 * steps)
    assert ("num_steps" in result.stderr) == (line in result.stderr)
    assert f"finished    {taken} steps" in result.stdout
