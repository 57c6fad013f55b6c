"""A config that is written as YAML reads back equal."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.experiment.config.train_config import config_yaml, parse_config
from rl_training.experiment.config.yaml_text import read_yaml

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=50)
@given(env_kwargs=st.dictionaries(st.text(), json_values, max_size=4), output=st.text(min_size=1))
def test_config_text_reads_back_to_an_equal_config(env_kwargs, output):
    config = parse_config({"algo": "ppo", "env_kwargs": env_kwargs, "output_dir": output, "compile": "on"})
    assert parse_config(read_yaml(config_yaml(config))) == config


@pytest.mark.parametrize("word", ["1e3", "on", "null", "0x10", "1:30", "2026-01-01", "12", ".5", "~", "<<"])
def test_words_that_look_like_something_else_stay_words(word):
    config = parse_config({"algo": "ppo", "env_kwargs": {"map_name": word}})
    assert parse_config(read_yaml(config_yaml(config))).env_kwargs == {"map_name": word}
