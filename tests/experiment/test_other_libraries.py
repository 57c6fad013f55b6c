"""Option names of Stable-Baselines3, d3rlpy and CleanRL are answered with the name here."""

import pytest

from rl_training.experiment.config.other_libraries import ALGORITHMS, EXPLAINED, RENAMED
from rl_training.experiment.config.registry import list_algorithm_specs
from rl_training.experiment.config.train_config import ConfigError, TrainConfig, apply_overrides, parse_config

OPTIONS = {spec.name: set(spec.config_type.model_fields) for spec in list_algorithm_specs()}


def message(values: object) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(values)
    return str(caught.value)


@pytest.mark.parametrize(
    ("algo", "name", "hint"),
    [
        ("ppo", "ent_coef", "Stable-Baselines3's ent_coef is entropy_weight here"),
        ("sac", "ent_coef", "Stable-Baselines3's ent_coef is temperature here"),
        ("ppo", "n_steps", "Stable-Baselines3's n_steps is num_steps here"),
        ("dqn", "n_steps", "Stable-Baselines3's n_steps is n_step here"),
        ("ppo", "vf_coef", "Stable-Baselines3's vf_coef is value_weight here"),
        ("ppo", "n_envs", "Stable-Baselines3's n_envs is num_envs here, at the top level"),
        ("dqn", "train_freq", "Stable-Baselines3's train_freq is collect_steps here"),
        ("cql", "conservative_weight", "d3rlpy's conservative_weight is cql_alpha here"),
        ("iql", "weight_temp", "d3rlpy's weight_temp is beta here"),
        ("ppo", "clip_coef", "CleanRL's clip_coef is clip_range here"),
        ("ppo", "lr", "use learning_rate"),
        ("ppo", "policy_kwargs", "Stable-Baselines3's policy_kwargs=dict(net_arch=[64, 64]) is hidden_sizes=[64, 64]"),
        (
            "ppo",
            "lstm_hidden_size",
            "sb3-contrib's lstm_hidden_size=256 is network={'memory': 'lstm', 'memory_size': 256}",
        ),
        ("ppo", "verbose", "Stable-Baselines3's verbose=1 is learn(quiet=False) here"),
    ],
)
def test_a_name_of_another_library_is_answered_with_the_name_here(algo, name, hint):
    assert f"algo_kwargs.{name}: unknown key; {hint}" in message({"algo": algo, "algo_kwargs": {name: 1}})


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("ent_coef", "auto", "ent_coef='auto' is tune_temperature=True here"),
        ("ent_coef", "auto_0.1", "ent_coef='auto_0.1' is tune_temperature=True, temperature=0.1 here"),
        ("ent_coef", 0.1, "ent_coef is temperature here; it is constant there, so add tune_temperature=False"),
        ("policy_kwargs", {"activation_fn": "relu"}, "activation_fn is network={'activation': 'relu'} here"),
        ("policy_kwargs", {"features_extractor_class": "a:B"}, "features_extractor_class is network=YourClass here"),
        (
            "policy_kwargs",
            {"net_arch": [8], "activation_fn": "relu"},
            "net_arch is hidden_sizes here; Stable-Baselines3",
        ),
        ("policy_kwargs", {"other": 1}, "policy_kwargs=dict(net_arch=[64, 64]) is hidden_sizes=[64, 64] here"),
    ],
)
def test_the_hint_depends_on_the_value(name, value, hint):
    assert hint in message({"algo": "sac", "algo_kwargs": {name: value}})


def test_a_function_as_a_schedule_is_answered_with_the_form_here():
    options = {"learning_rate": lambda remaining: remaining * 1e-3}
    written = {"learning_rate": {"kind": "linear", "end": 0.0}}
    hint = f"schedules={written}"
    assert message({"algo": "ppo", "algo_kwargs": options}).endswith(f"; write a number, and add {hint}")
    for other in ({"learning_rate": "fast"}, {"num_steps": max}):
        assert "schedules" not in message({"algo": "ppo", "algo_kwargs": other})
    parse_config({"algo": "ppo", "env_id": "CartPole-v1", "schedules": written, "algo_kwargs": {"learning_rate": 1e-3}})


def test_the_hint_says_where_a_config_holds_the_key():
    assert message({"algo": "ppo", "ent_coef": 0.1}).endswith("ent_coef is algo_kwargs.entropy_weight here")
    typed = apply_overrides({"algo": "ppo"}, ["n_envs=4"])
    assert "n_envs is num_envs here" in message(typed)


@pytest.mark.parametrize("algo", OPTIONS)
def test_no_hint_names_an_option_that_the_algorithm_lacks(algo):
    own = {*OPTIONS[algo], *TrainConfig.model_fields}
    for library, names in RENAMED.items():
        for name in names.keys() - own:
            sentence = message({"algo": algo, "algo_kwargs": {name: 1}})
            suggested = [each for each in names[name] if each in own]
            named = f"{library}'s {name} is " if library else "; use "
            assert (named in sentence) == bool(suggested), sentence
            assert not suggested or suggested[0] in sentence


@pytest.mark.parametrize(
    ("algo", "hint"),
    [
        ("RecurrentPPO", "ppo with network.memory=lstm"),
        ("maskable-ppo", "ppo, which finds the action masks"),
        ("her", "with hindsight=future"),
        ("sac_n", "edac with eta=0"),
    ],
)
def test_an_algorithm_of_another_library_is_answered_with_the_one_here(algo, hint):
    assert f"got '{algo}'; use " in (sentence := message({"algo": algo, "env_id": "CartPole-v1"}))
    assert hint in sentence


def test_every_algorithm_that_is_suggested_exists():
    assert {text.replace(",", "").split()[0] for text in ALGORITHMS.values()} <= OPTIONS.keys()


def test_every_suggested_name_exists_somewhere_and_every_explained_name_is_unknown():
    everywhere = set.union(*OPTIONS.values(), set(TrainConfig.model_fields))
    suggested = {own for names in RENAMED.values() for candidates in names.values() for own in candidates}
    assert suggested - everywhere <= {"env_wrappers", "log", "record_video_interval"}
    assert not EXPLAINED.keys() & everywhere
