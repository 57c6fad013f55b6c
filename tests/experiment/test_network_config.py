"""The option `network` of a config: its forms and the errors for mistakes in it."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

import rl_training
from rl_training.experiment.config.differences import config_differences
from rl_training.experiment.config.train_config import ConfigError, apply_overrides, parse_config


def parsed(**changes: Any) -> Any:
    return parse_config({"algo": "ppo", "env_id": "CartPole-v1", **changes})


def test_all_forms_mean_the_same():
    wanted = parsed(algo_kwargs={"network": {"kind": "mlp", "hidden_sizes": [8], "activation": "relu"}})
    assert parsed(network={"hidden_sizes": [8], "activation": "relu"}) == wanted
    assert rl_training.PPO("CartPole-v1", network={"hidden_sizes": (8,), "activation": "relu"}).config == wanted
    values = {"algo": "ppo", "env_id": "CartPole-v1", "network": "mlp"}
    changes = ["network.activation=relu", "network.hidden_sizes=[8]"]
    assert parse_config(apply_overrides(values, changes)) == wanted
    assert wanted.algo_kwargs["hidden_sizes"] == [8]
    assert wanted.algo_kwargs["activation"] == "relu"
    assert parse_config(wanted) == wanted
    assert config_differences(parsed(network="mlp"), parsed(network={"kind": "mlp"})) == {}


def test_a_config_of_an_earlier_version_has_no_network():
    stored = parsed().model_dump()
    assert stored["algo_kwargs"].pop("network") is None
    assert config_differences(parse_config(stored), parsed()) == {}


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ("lstm", "network: lstm is a memory, not a kind of hidden layers; set network.memory to lstm"),
        ("sima", r"network: kind must be mlp, simba, simba_v2 or module:Class of your own, got 'sima'"),
        ({"activation": "relo"}, r"network.activation: must be 'relu', .*, got 'relo'"),
        ({"hiden_sizes": [3]}, r"network: unknown key 'hiden_sizes'; did you mean hidden_sizes\?"),
        ({"sizes_of_all": 3}, r"network: unknown key 'sizes_of_all'; mlp has hidden_sizes, activation, layer_norm"),
        ({"hidden_sizes": 64}, r"network.hidden_sizes: must be a list, such as \[1, 2\], got 64"),
        ({"hidden_sizes": [0]}, r"network.hidden_sizes.0: must be greater than 0, got 0"),
        (64, r"network: must be a word, a class or a mapping, got 64; use hidden_sizes=\[64\]"),
        ([64, 64], r"network: .*; use hidden_sizes=\[64, 64\]"),
        ({"activation": nn.ReLU}, "network: activation must be a word; use 'relu' for ReLU"),
        ({"activation": nn.Tanh()}, "network: activation must be a word; use 'tanh' for Tanh"),
        (nn.Linear(2, 2), "network: must be a class, got an object; pass the class Linear itself"),
        (True, "network: must not be true or false"),
    ],
)
def test_a_mistake_in_the_config_is_named(network, message):
    with pytest.raises(ConfigError, match=message):
        parsed(network=network)


def test_a_network_that_is_given_twice_is_refused():
    with pytest.raises(ConfigError, match="network is given twice"):
        parsed(network="mlp", algo_kwargs={"network": "mlp"})
    with pytest.raises(ConfigError, match=r"activation is tanh, but network.activation is relu; set one"):
        parsed(network={"activation": "relu"}, algo_kwargs={"activation": "tanh"})
