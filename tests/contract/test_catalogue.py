"""Each algorithm of the catalogue has a managed class, a training function, a config and its rows in the docs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import rl_training
from rl_training import algorithms, runtime
from rl_training.algorithms import CATALOGUE, ROWS
from rl_training.api.stub import stubs
from rl_training.experiment.config.packaged import load_config, packaged_configs
from rl_training.experiment.config.train_config import parse_config

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=sorted(CATALOGUE))
def name(request):
    return request.param


def test_has_a_managed_class_and_a_train_function(name):
    managed = getattr(rl_training, ROWS[name])
    assert issubclass(managed, rl_training.ManagedAlgorithm)
    assert (managed.algorithm, managed.__name__) == (name, ROWS[name])
    assert getattr(rl_training, f"train_{name}") is getattr(runtime, f"train_{name}")


def test_the_managed_class_documents_its_paper_and_every_option(name):
    text = getattr(rl_training, ROWS[name]).__doc__
    spec = rl_training.get_algorithm_spec(name)
    assert text.startswith(spec.summary)
    for config in (spec.config_type, rl_training.TrainConfig):
        for option, field in config.model_fields.items():
            assert option == "algo" or f"{option}: {field.description} (default {field.default!r})" in text


def test_the_learner_is_public_and_named_after_the_managed_class(name):
    learner = CATALOGUE[name]
    assert (learner.name, learner.__name__) == (name, f"{ROWS[name]}Algorithm")
    assert getattr(algorithms, learner.__name__) is learner
    assert getattr(algorithms, learner.config_type.__name__) is learner.config_type


def test_the_stubs_are_current():
    outdated = [path.name for path, text in stubs().items() if path.read_text() != text]
    assert outdated == [], "run `make stub`"


def test_dir_lists_the_public_names():
    assert {"CATALOGUE", "SACAlgorithm", "SACConfig", "iql_loss", "Learner", "Updater"} <= set(dir(algorithms))
    assert {"SAC", "train_sac", "TrainConfig", "register_algorithm"} <= set(dir(rl_training))


def test_has_a_packaged_config_that_is_valid(name):
    mine = [config for config in packaged_configs() if config.startswith(f"{name}/")]
    assert mine
    assert all(parse_config(load_config(config)).algo == name for config in mine)


def test_has_a_row_in_both_tables_of_the_docs(name):
    rows = (ROOT / "docs" / "algorithms.md").read_text().splitlines()
    mine = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows if row.startswith(f"| `{name}` |")]
    assert [len(row) for row in mine] == [5, 4]
    assert all(cell for row in mine for cell in row)


def test_no_source_file_but_the_catalogue_lists_all_algorithms():
    listing = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "src").rglob("*.py")
        if (words := set(re.findall(r"\w+", path.read_text())))
        and all(name in words or learner.__name__ in words for name, learner in CATALOGUE.items())
    ]
    assert listing == ["src/rl_training/algorithms/__init__.py"]


def test_every_option_has_help(name):
    fields = CATALOGUE[name].config_type.model_fields
    assert [option for option, field in fields.items() if not field.description] == []


def test_build_promises_its_own_class_only_where_it_creates_no_other(name):
    """A type checker must not take the DiscreteSAC that `SACAlgorithm.build` may return for a SACAlgorithm."""
    learner = CATALOGUE[name]
    promised = learner.build.__annotations__["return"]
    assert learner.discrete_type is None or promised in ("Any", Any)
