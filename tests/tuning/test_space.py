"""The search space of a study: the forms of --search, and what is refused before the first trial."""

from __future__ import annotations

import pytest

from rl_training.experiment.config.train_config import ConfigError, load_config, parse_config
from rl_training.experiment.tuning.space import Choices, Range, assignments, checked, merged, parse_search

CONFIG = load_config("ppo/cartpole")


def parsed(*texts: str, fixed: tuple[str, ...] = ()):
    return checked(parse_search(texts), CONFIG, fixed).dimensions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("learning_rate=1e-5:1e-2:log", Range(1e-5, 1e-2, log=True)),
        ("gamma=0.9:0.999", Range(0.9, 0.999)),
        ("gamma=0:1", Range(0, 1)),
        ("algo_kwargs.gamma=0.9:0.999", Range(0.9, 0.999)),
        ("batch_size=64:256", Range(64, 256, is_int=True)),
        ("batch_size=16:512:log", Range(16, 512, log=True, is_int=True)),
        ("batch_size=1e2:1e3", Range(100, 1000, is_int=True)),
        ("batch_size=64:250:64", Range(64, 192 + 64 - 64, step=64, is_int=True)),
        ("batch_size=64,128,256", Choices((64, 128, 256))),
        ("hidden_sizes=[64,64],[256,256]", Choices(([64, 64], [256, 256]))),
        ("normalize_obs=true,false", Choices((True, False))),
        ("network.activation=relu,tanh", Choices(("relu", "tanh"))),
        ("network=my_nets:Big,my_nets:Small", Choices(("my_nets:Big", "my_nets:Small"))),
        ("schedules.learning_rate.end=0:1", Range(0, 1)),
        ("early_stopping.patience=1:3", Range(1, 3, is_int=True)),
        ("num_envs=1:8", Range(1, 8, is_int=True)),
        ("clip_range=0.1,0.2,null", None),
    ],
)
def test_a_search_is_a_range_or_a_list_of_values(text, expected):
    key = text.partition("=")[0].removeprefix("algo_kwargs.")
    if expected is None:
        with pytest.raises(ConfigError, match="clip_range: must be a valid number"):
            parsed(text)
    else:
        assert parsed(text) == {key: expected}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rat=1:2", "--search learning_rat: unknown key; did you mean learning_rate?"),
        ("gamma=0.9:1.5", "--search gamma: must be less than or equal to 1, got 1.5"),
        ("gamma=0.9,7", "--search gamma: must be less than or equal to 1, got 7"),
        ("batch_size=a,b", "--search batch_size: must be a valid integer, got 'a'"),
        ("batch_size=0.5:64", "--search batch_size: must be a valid integer, got 0.5"),
        ("batch_size=64:128:0.5", "--search batch_size: must be an integer, so the step cannot be 0.5"),
        ("gamma=0.9:0.8", "--search gamma: LOW must be below HIGH, got 0.9:0.8"),
        ("gamma=0.9:high", "--search gamma: a range must be LOW:HIGH, LOW:HIGH:log or LOW:HIGH:STEP, got 0.9:high"),
        ("gamma=0.9:1:lg", "--search gamma: the third part must be log, or a step of at most HIGH - LOW"),
        ("gamma=0:1:log", "--search gamma: a log range must start above 0, got 0:1:log"),
        ("gamma=0.9", "--search gamma: has one value, 0.9; give several, or fix it with --set"),
        ("gamma=a:b", "--search gamma: the ends of a range must be numbers, got a:b; or give several values, A,B,C"),
        ("gamma=0.9,0.9", "--search gamma: must not repeat a value, got 0.9,0.9"),
        ("gamma=", "--search gamma: must be KEY=LOW:HIGH"),
        ("gamma=[", "--search gamma: not YAML"),
        ("gamma", "--search must be KEY=LOW:HIGH, KEY=LOW:HIGH:log, KEY=LOW:HIGH:STEP or KEY=A,B,C, got 'gamma'"),
        ("network.colour=true,false", "--search network.colour: network: unknown key 'colour'"),
        ("seed=0:9", "--search seed: cannot be tuned, because seed is what a trial repeats"),
        ("total_timesteps=1e3:1e6", "--search total_timesteps: cannot be tuned, because total_timesteps is the length"),
        ("output_dir=a,b", "--search output_dir: cannot be tuned, because output_dir is chosen by --output"),
        ("algo=ppo,dqn", "--search algo: cannot be tuned, because algo has options of its own"),
        ("env_id=A-v1,B-v1", "--search env_id: cannot be tuned, because env_id has returns of its own"),
        ("eval_episodes=1:9", "--search eval_episodes: cannot be tuned, because eval_episodes changes how runs"),
        ("device=cpu,cuda", "--search device: cannot be tuned, because device does not change what is learned"),
    ],
)  # fmt: skip
def test_a_search_that_makes_no_sense_is_refused_before_the_first_trial(text, message):
    with pytest.raises(ConfigError) as caught:
        parsed(text)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("texts", "fixed", "message"),
    [
        (["gamma=0.9:1"], ["gamma"], "--search gamma and --set gamma set the same key; give one of them"),
        (["gamma=0.9:1"], ["algo_kwargs.gamma"], "--search gamma and --set gamma set the same"),
        (["network=a:B,a:C"], ["network.activation"], "--search network and --set network.activation set the same"),
        (["gamma=0.9:1", "gamma=0.8:1"], [], "--search gamma is given twice; give all its values in one"),
        (["network=a:B,a:C", "network.kind=mlp,a:B"], [], "--search network and --search network.kind set the same"),
        ([], [], "nothing to tune: give --search KEY=LOW:HIGH"),
    ],
)  # fmt: skip
def test_a_key_is_set_in_one_place_only(texts, fixed, message):
    with pytest.raises(ConfigError) as caught:
        parsed(*texts, fixed=fixed)
    assert str(caught.value).startswith(message)


def test_values_that_are_valid_only_together_are_accepted():
    values = {"algo": "c51", "env_id": "CartPole-v1", "algo_kwargs": {"v_min": -10, "v_max": 10}}
    space = checked(parse_search(["v_min=20:30", "v_max=40:50"]), values, ())
    assert list(space.dimensions) == ["v_min", "v_max"]
    with pytest.raises(ConfigError, match="--search v_min: "):
        checked(parse_search(["v_min=20:30"]), values, ())


def test_a_suggested_value_reaches_the_config_exactly():
    params = {"learning_rate": 1.2345678901234567e-05, "hidden_sizes": [8, 8], "network.activation": "tanh"}
    config = parse_config(merged(CONFIG, params))
    assert config.algo_kwargs["learning_rate"] == params["learning_rate"]
    assert config.algo_kwargs["hidden_sizes"] == [8, 8]
    assert assignments(params)[0] == "learning_rate=1.2345678901234568e-05"


def test_a_space_without_continuous_ranges_knows_its_size():
    assert checked(parse_search(["batch_size=64,128", "epochs=1:5", "gamma=0.9:0.99:0.03"]), CONFIG, ()).size == 40
    assert checked(parse_search(["gamma=0.9:0.99", "epochs=1:5"]), CONFIG, ()).size == float("inf")
