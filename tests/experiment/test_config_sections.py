"""Settings of a config file that depend on the backend of the environments."""

import pytest

from rl_training import PPO
from rl_training.experiment.config.train_config import ConfigError, apply_overrides, load_config, parse_config

FILE = {"algo": "ppo", "env_id": "CartPole-v1", "num_envs": 8, "algo_kwargs": {"epochs": 20, "gamma": 0.9},
        "device_envs": {"num_envs": 64, "algo_kwargs": {"epochs": 10}}}  # fmt: skip


def settings(*assignments: str) -> tuple[int, int, float]:
    config = parse_config(apply_overrides(FILE, assignments))
    return config.num_envs, config.algo_kwargs["epochs"], config.algo_kwargs["gamma"]


def test_the_section_replaces_its_keys_and_overrides_replace_the_section():
    assert settings() == (8, 20, 0.9)
    assert settings("env_backend=device") == (64, 10, 0.9)
    assert settings("num_envs=4", "env_backend=device", "epochs=3") == (4, 3, 0.9)
    assert parse_config({**FILE, "env_backend": "device"}).num_envs == 64
    assert parse_config(apply_overrides(FILE, ["env_backend=device"], num_envs=2)).num_envs == 2
    assert PPO(FILE, env_backend="device").config.num_envs == 64
    assert PPO(FILE, env_backend="device", num_envs=2, epochs=3).config.num_envs == 2


@pytest.mark.parametrize("section", [{"seed": 1}, [1], {"num_envs": 4, "device": "cpu"}])
def test_the_section_has_few_keys(section):
    with pytest.raises(ConfigError, match=r"device_envs: must be a mapping with total_timesteps, num_envs, .*, got"):
        parse_config({**FILE, "device_envs": section, "env_backend": "device"})


def test_cartpole_has_more_environments_on_the_device():
    values = load_config("ppo/cartpole")
    assert parse_config(values).num_envs == 8
    assert parse_config(apply_overrides(values, ["env_backend=device"])).num_envs == 64


def test_dqn_on_cartpole_updates_less_often_on_the_device():
    config = parse_config(apply_overrides(load_config("dqn/cartpole"), ["env_backend=device"]))
    assert (config.total_timesteps, config.num_envs, config.algo_kwargs["updates_per_collect"]) == (100_000, 64, 16)
