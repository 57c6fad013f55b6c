"""What the catalogue holds has a managed class, a train function, a config and its rows in the docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rl_training
from rl_training import algorithms, runtime
from rl_training.algorithms import CATALOGUE
from rl_training.experiment.config.train_config import load_config, packaged_configs, parse_config

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


def test_the_learner_is_public_and_named_after_the_managed_class(name):
    learner = CATALOGUE[name]
    managed = {cls.algorithm: cls for cls in _managed_classes()}[name]
    assert getattr(algorithms, learner.__name__) is learner
    assert learner.__name__ == f"{managed.__name__}Algorithm"


def test_has_a_packaged_config_that_is_valid(name):
    mine = [config for config in packaged_configs() if config.startswith(f"{name}/")]
    assert mine
    assert all(parse_config(load_config(config)).algo == name for config in mine)


def test_has_a_row_in_both_tables_of_the_docs(name):
    rows = (ROOT / "docs" / "algorithms.md").read_text().splitlines()
    mine = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows if row.startswith(f"| `{name}` |")]
    assert [len(row) for row in mine] == [5, 4]
    assert all(cell for row in mine for cell in row)


def test_contributing_names_every_file_that_lists_all_algorithms():
    pages = {ROOT / "README.md", *(ROOT / "docs").glob("*.md")} - {ROOT / "docs" / "results.md"}  # which is generated
    listing = [
        path.relative_to(ROOT).as_posix()
        for path in {*pages, *(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.pyi")}
        if (words := set(re.findall(r"\w+", path.read_text())))
        and all(name in words or learner.__name__ in words for name, learner in CATALOGUE.items())
    ]
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    assert listing
    assert [file for file in listing if f"`{file}`" not in contributing] == []


def test_every_option_has_help(name):
    fields = CATALOGUE[name].config_type.model_fields
    assert [option for option, field in fields.items() if not field.description] == []
