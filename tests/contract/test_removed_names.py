"""A removed public name raises an error that names its successor."""

from __future__ import annotations

import importlib

import pytest

import rl_training
from rl_training import algorithms
from rl_training.algorithms import CATALOGUE


@pytest.mark.parametrize("learner", CATALOGUE.values(), ids=list(CATALOGUE))
def test_the_old_name_of_a_learner_class_names_both_successors(learner):
    old = learner.__name__.removesuffix("Algorithm")
    successors = rf"Use rl_training\.{old} .* rl_training\.algorithms\.{learner.__name__} "
    with pytest.raises(ImportError, match=successors):
        exec(f"from rl_training.algorithms import {old}")
    with pytest.raises(AttributeError, match=successors):
        getattr(algorithms, old)
    assert not hasattr(algorithms, old)
    assert hasattr(rl_training, old)


@pytest.mark.parametrize("name", ["Sacc"])
def test_an_unknown_name_is_an_ordinary_attribute_error(name):
    with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
        getattr(algorithms, name)
    with pytest.raises(ImportError, match=f"cannot import name '{name}'"):
        exec(f"from rl_training.algorithms import {name}")
    assert importlib.import_module("rl_training.algorithms.fqe") is not None
