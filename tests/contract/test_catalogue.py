"""Joining the catalogue is enough: the managed class, the train function, the config and the docs follow."""

from __future__ import annotations

from pathlib import Path

import pytest

import rl_training
from rl_training import algorithms, runtime
from rl_training.algorithms import CATALOGUE
from rl_training.experiment.config import load_config, packaged_configs, parse_config

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=sorted(CATALOGUE))
def name(request):
    return request.param


def test_has_a_managed_class_and_a_train_function(name):
    managed = {cls.algorithm: cls for cls in _managed_classes()}[name]
    assert managed is getattr(rl_training, managed.__name__)
    assert getattr(rl_training, f"train_{name}") is getattr(runtime, f"train_{name}")


def _managed_classes():
    import rl_training.api.algorithms  # which defines them all

    return rl_training.ManagedAlgorithm.__subclasses__()


def test_the_learner_has_both_its_names(name):
    learner = CATALOGUE[name]
    assert getattr(algorithms, learner.__name__) is learner
    assert getattr(algorithms, f"{learner.__name__}Algorithm") is learner


def test_has_a_packaged_config_that_is_valid(name):
    mine = [config for config in packaged_configs() if config.startswith(f"{name}/")]
    assert mine
    assert all(parse_config(load_config(config)).algo == name for config in mine)


def test_has_a_row_in_the_docs(name):
    rows = (ROOT / "docs" / "algorithms.md").read_text().splitlines()
    assert any(row.startswith(f"| `{name}` |") for row in rows)


def test_every_option_has_help(name):
    fields = CATALOGUE[name].config_type.model_fields
    assert [option for option, field in fields.items() if not field.description] == []
