"""Parsing a config: values are converted, and mistakes are reported with the key and what is allowed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rl_training.experiment.config.dataset_config import DatasetRecipe, FilePart, RecipePart, RewardTransform
from rl_training.experiment.config.train_config import (
    ConfigError,
    config_yaml,
    parse_config,
)
from rl_training.experiment.config.yaml_text import read_yaml


def message(values: object) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(values)
    return str(caught.value)


def test_parsed_config_holds_every_option_of_its_algorithm():
    options = parse_config({"algo": "iql", "algo_kwargs": {"expectile": 0.9}}).algo_kwargs
    assert options["expectile"] == 0.9
    assert options["beta"] == 3.0  # the default of IQLConfig


def test_numbers_written_as_text_become_numbers():
    config = parse_config({"algo": "iql", "total_timesteps": 1e6, "algo_kwargs": {"learning_rate": "1e-3"}})
    assert (config.total_timesteps, config.algo_kwargs["learning_rate"]) == (1_000_000, 0.001)


def test_parsing_a_parsed_config_changes_nothing():
    config = parse_config({"algo": "sac", "env_id": "Pendulum-v1", "output_dir": Path("runs/a")})
    assert parse_config(config) == config


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"total_timestep": 5}, "total_timestep: unknown key; did you mean total_timesteps?"),
        ({"expectile": 0.9}, "expectile: unknown key; did you mean algo_kwargs.expectile?"),
        ({"algo_kwargs": {"lerning_rate": 1}}, "algo_kwargs.lerning_rate: unknown key; did you mean learning_rate?"),
        ({"algo_kwargs": {"sed": 1}}, "algo_kwargs.sed: unknown key; did you mean seed, at the top level?"),
        ({"early_stopping": {"patience": 1, "delta": 1}}, "early_stopping.delta: unknown key; did you mean min_delta?"),
        ({"schedules": {"learning_rate": {"knd": 1}}}, "schedules.learning_rate.knd: unknown key; did you mean kind?"),
        ({"patience": 3}, "patience: unknown key; did you mean early_stopping.patience?"),
        (
            {"algo_kwargs": {"max_gp": 3}},
            "algo_kwargs.max_gp: unknown key; did you mean table.max_gap, at the top level?",
        ),
        ({"algo_kwargs": {"layer_nrm": 1}}, "algo_kwargs.layer_nrm: unknown key; did you mean network.layer_norm?"),
        ({"layer_norm": 1}, "layer_norm: unknown key; did you mean network.layer_norm?"),
        ({"rewards": {"num_critics": 1}}, "rewards.num_critics: unknown key"),
        ({"qqqqqqqq": 5}, "qqqqqqqq: unknown key"),
    ],
)
def test_unknown_key_is_answered_with_the_nearest_right_one(values, sentence):
    assert message({"algo": "iql", **values}) == sentence


@pytest.mark.parametrize(
    ("algo", "key", "hint"),
    [
        (
            "sac",
            "critic_hidden_sizes",
            "did you mean network.critic_hidden_sizes, with network.kind=simba or simba_v2?",
        ),
        ("iql", "critic_hidden_sizes", "iql does not have it. Leave it out, or use one that does: cal_ql, cql"),
        ("crossq", "critic_hiden_sizes", "did you mean critic_hidden_sizes?"),
        ("ppo", "memory_size", "did you mean network.memory_size?"),
        ("pqn", "normalize_obs", "pqn does not have it. Leave it out, or use one that does: gail, ppo"),
        ("pqn", "gradient_step", ""),
    ],
)
def test_hints_depend_on_the_options_of_the_algorithm(algo, key, hint):
    assert message({"algo": algo, "algo_kwargs": {key: 1}}) == f"algo_kwargs.{key}: unknown key{hint and '; '}{hint}"


def test_a_long_list_of_algorithms_with_an_option_is_cut():
    sentence = message({"algo": "ppo", "algo_kwargs": {"tau": 1}})
    assert re.fullmatch(r".* or use one that does: (\w+, ){4}\w+ and [0-9]+ more", sentence), sentence


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"num_envs": 0}, "num_envs: must be greater than or equal to 1, got 0"),
        ({"seed": True}, "seed: must be an integer, got True"),
        ({"seed": "abc"}, "seed: must be a valid integer, got 'abc'"),
        ({"device": "tpu"}, "device: must be auto, cpu, cuda or cuda:N, got 'tpu'"),
        ({"compile": "maybe"}, "compile: must be 'auto', 'on' or 'off', got 'maybe'"),
        ({"dataset": 3}, "dataset: must be a file, a recipe or a list of them, got 3"),
        ({"dataset": {"kind": "random"}}, "dataset.rows: is required"),
        ({"algo_kwargs": {"expectile": 2}}, "algo_kwargs.expectile: must be less than 1, got 2"),
        ({"output_dir": ""}, "output_dir: must not be empty, got ''"),
        ({"algo_kwargs": {"hidden_sizes": [64, 0]}}, "algo_kwargs.hidden_sizes.1: must be greater than 0, got 0"),
        ({"algo_kwargs": {"hidden_sizes": 64}}, "algo_kwargs.hidden_sizes: must be a list, such as [1, 2], got 64"),
        ({"algo_kwargs": 7}, "algo_kwargs: must be a mapping, got 7"),
        ({"env_kwargs": {"g": float("nan")}}, "env_kwargs.g: must be a finite number, got nan"),
        ({"seed": 2**20000}, "seed: must be less than or equal to 1000000000000000, got an integer of 20001 bits"),
    ],
)
def test_an_invalid_value_is_reported_with_its_key_the_allowed_values_and_the_value(values, sentence):
    assert message({"algo": "iql", **values}) == sentence


def test_every_error_has_a_line():
    lines = message({"algo": "iql", "sed": 1, "num_envs": 0, "algo_kwargs": {"beta": -1}}).splitlines()
    assert [line.split(":")[0] for line in lines] == ["num_envs", "sed", "algo_kwargs.beta"]


def test_a_long_list_of_errors_is_shortened():
    lines = message({"algo": "iql", **{f"key_{i}": i for i in range(5000)}}).splitlines()
    assert len(lines) == 11
    assert lines[-1] == "and 4990 more"


def test_unknown_algorithm_is_answered_with_the_nearest():
    assert message({"algo": "iqll"}).endswith("got 'iqll'; did you mean iql?")


def test_a_word_that_shares_no_letter_is_not_a_misspelling():
    assert message({"algo": "zz"}).endswith("got 'zz'")


def test_algorithm_is_required():
    assert message({"seed": 1}) == "algo: is required"


def test_a_config_is_a_mapping():
    assert message([1]) == "a config must be a mapping, got [1]"


def test_dataset_among_the_options_moves_to_its_own_key():
    recipe = {"kind": "random", "rows": 100}
    config = parse_config({"algo": "iql", "env_id": "Pendulum-v1", "algo_kwargs": {"dataset": recipe}})
    assert config.dataset == DatasetRecipe(kind="random", rows=100)
    assert "dataset" not in config.algo_kwargs


def test_two_datasets_are_refused():
    assert "both given" in message({"algo": "iql", "dataset": "a.npz", "algo_kwargs": {"dataset": "b.npz"}})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"dataset": {"kind": "random", "rows": 5}}, "env_id is required"),
        ({"dataset": {"kind": "policy", "rows": 5}, "env_id": "Pendulum-v1"}, "dataset: policy is required"),
        ({"dataset": {"kind": "random", "rows": 5, "epsilon": 0.1}, "env_id": "a"}, "need kind: policy"),
        ({"early_stopping": {"patience": 3}, "eval_interval": 0}, "eval_interval must be at least 1"),
    ],
)
def test_values_that_do_not_fit_together_are_refused(values, words):
    assert words in message({"algo": "iql", **values})


def test_a_dataset_may_be_several_sources_each_with_its_weight():
    parts = [{"source": "a.npz", "weight": 1}, {"kind": "random", "rows": 100, "weight": 3}]
    config = parse_config({"algo": "iql", "env_id": "Pendulum-v1", "dataset": parts})
    assert config.dataset == (FilePart(source="a.npz", weight=1.0), RecipePart(kind="random", rows=100, weight=3.0))
    assert parse_config({"algo": "iql", "dataset": ["a.npz"]}).dataset == (FilePart(source="a.npz"),)


def test_how_data_is_read_stays_with_the_config():
    given = {
        "dataset": "logs.csv", "dataset_columns": {"obs": "x,y"}, "action_range": [[-1, 0], 2], "allow": "nan",
        "rewards": {"normalize": "return_range", "shift": -1, "clip": [-5, 5]},
    }  # fmt: skip
    config = parse_config({"algo": "iql", **given})
    assert (config.action_range, config.allow) == (((-1.0, 0.0), 2.0), ("nan",))
    assert config.rewards == RewardTransform(normalize="return_range", shift=-1.0, clip=(-5.0, 5.0))
    assert parse_config(read_yaml(config_yaml(config))) == config


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"dataset": []}, "dataset: must name at least one source, got []"),
        ({"dataset": [3]}, "dataset.0: must be a file, or a mapping with source or kind, got 3"),
        ({"dataset": [{"source": "a", "weight": 0}]}, "dataset.0.weight: must be greater than 0, got 0"),
        ({"dataset": [{"source": "a", "wait": 1}]}, "dataset.0.wait: unknown key; did you mean weight?"),
        ({"dataset": ["a", {"source": "b", "weight": 1}]},
         "dataset: give every source a weight, or none (then all rows are sampled uniformly)"),
        ({"allow": ["nans"]}, "allow: must be among nan, out_of_range, no_episode_end, crossing, got 'nans'"),
        ({"action_range": 2}, "action_range: must be [low, high], got 2"),
        ({"rewards": {"clip": 5}}, "rewards.clip: must be [low, high], got 5"),
        ({"rewards": {"clip": [1, 0]}}, "rewards: clip must be [low, high] with low < high, got [1.0, 0.0]"),
        ({"rewards": {"scale": 0}}, "rewards: scale must not be 0: all rewards would be 0"),
        ({"rewards": {"shft": 1}}, "rewards.shft: unknown key; did you mean shift?"),
        ({"dataset": None, "allow": ["nan"]},
         "allow applies to dataset files, and the dataset has no file; remove it or give a file"),
    ],
)  # fmt: skip
def test_an_error_in_the_dataset_section_is_one_sentence(values, sentence):
    assert message({"algo": "iql", "dataset": "a.npz", **values}) == sentence


def test_on_and_off_may_come_as_booleans():
    assert parse_config({"algo": "iql", "compile": True}).compile == "on"


@pytest.mark.parametrize(("key", "part"), [("env_wrappers", "wrapper"), ("callbacks", "callback")])
def test_objects_to_import_are_named_one_by_one_or_in_a_list_with_options(key, part):
    given = ["mine:A", {part: "mine.inner:B", "limit": 3}]
    base = {"algo": "dqn", "env_id": "CartPole-v1"}
    assert getattr(parse_config({**base, key: given}), key) == tuple(given)
    assert getattr(parse_config({**base, key: "mine:A"}), key) == ("mine:A",)
    for wrong in ("mine", {"limit": 3}, ["mine:A", 3], {part: "mine:A-v0"}):
        with pytest.raises(ConfigError, match=f"{key}: must be module:Name or {{{part}: module:Name, option: value}}"):
            parse_config({**base, key: wrong})


def test_null_stands_for_no_exploration_noise():
    config = parse_config({"algo": "td3", "env_id": "Pendulum-v1", "algo_kwargs": {"action_noise": None}})
    assert config.algo_kwargs["action_noise"] == "none"


def test_trackers_are_a_list_or_a_single_word():
    base = {"algo": "dqn", "env_id": "CartPole-v1"}
    assert parse_config(base).log == ("tensorboard",)
    assert parse_config({**base, "log": "wandb"}).log == ("wandb",)
    assert parse_config({**base, "log": []}).log == ()
    assert parse_config({**base, "log": "none"}).log == parse_config({**base, "log": None}).log == ()
    with pytest.raises(ConfigError, match="log"):
        parse_config({**base, "log": ["wanbd"]})
