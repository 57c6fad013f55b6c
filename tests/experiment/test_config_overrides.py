"""Overrides KEY=VALUE of single options, and the differences of two configs."""

from __future__ import annotations

import pytest

from rl_training.experiment.config.differences import config_differences
from rl_training.experiment.config.train_config import ConfigError, apply_overrides, parse_config


def test_override_of_a_bare_option_goes_to_the_algorithm():
    assert apply_overrides({"algo": "iql"}, ["expectile=0.8"]) == {"algo": "iql", "algo_kwargs": {"expectile": 0.8}}


def test_override_with_dots_reaches_into_a_section_and_leaves_the_rest():
    values = {"early_stopping": {"patience": 9, "min_delta": 1.0}}
    changed = apply_overrides(values, ["early_stopping.patience=3", "seed=4"])
    assert changed == {"early_stopping": {"patience": 3, "min_delta": 1.0}, "seed": 4}
    assert values == {"early_stopping": {"patience": 9, "min_delta": 1.0}}


def test_override_reaches_a_recipe_that_stood_among_the_options():
    values = {"algo_kwargs": {"dataset": {"kind": "random", "rows": 5}}}
    assert apply_overrides(values, ["dataset.rows=7"])["dataset"] == {"kind": "random", "rows": 7}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1e6", 1e6),
        ("-2.5E+3", -2500.0),
        ("100_000", 100_000),
        ("[256, 256]", [256, 256]),
        ("null", None),
        ("true", True),
        ("on", "on"),
        ("ALE/Pong-v5", "ALE/Pong-v5"),
        ("a=b", "a=b"),
    ],
)
def test_override_values_are_read_as_yaml(text, value):
    assert apply_overrides({}, [f"env_kwargs.x={text}"]) == {"env_kwargs": {"x": value}}


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("seed", "must be KEY=VALUE"),
        ("=3", "must be KEY=VALUE"),
        ("a..b=3", "must be KEY=VALUE"),
        ("seed=[1", "seed: not YAML"),
        ("seed.deep=1", "seed is not a mapping"),
    ],
)
def test_wrong_overrides_are_refused(assignment, words):
    with pytest.raises(ConfigError, match=words):
        apply_overrides({"seed": 1}, [assignment])


def test_differences_name_the_dotted_keys_and_pass_over_the_output():
    a = parse_config({"algo": "iql", "output_dir": "x", "algo_kwargs": {"beta": 3}, "dataset": "a.npz"})
    b = parse_config({"algo": "iql", "output_dir": "y", "seed": 1, "algo_kwargs": {"beta": 4}, "dataset": "b.npz"})
    assert config_differences(a, b) == {
        "seed": (0, 1),
        "algo_kwargs.beta": (3.0, 4.0),
        "dataset": ("a.npz", "b.npz"),
    }
