"""Choices in several files, such as one a day: the first action is that of all files together."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from rl_training.data import TransitionDataset, load_transition_dataset
from rl_training.types import EnvSpec


def write(path: Path, dose: Sequence[int | None]) -> Path:
    rows = {"temperature": [0.5, 1.5, 2.5, 3.5, 4.5, 5.5], "next_obs": [1.5, 2.5, 3.5, 4.5, 5.5, 6.5], "dose": dose,
            "fan": [0, 1, 1, 0, 0, 1], "reward": [1.0] * 6, "done": [0, 0, 1, 0, 0, 1]}  # fmt: skip
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def load(paths: list[Path], actions: str) -> TransitionDataset:
    return load_transition_dataset(paths, columns={"obs": "temperature", "actions": actions})


@pytest.mark.parametrize("few", [[1] * 6, [3, 2] * 3])
def test_actions_begin_with_1_if_those_of_all_files_together_do(tmp_path, few):
    paths = [write(tmp_path / "a.csv", [1, 4, 3, 2, 1, 4]), write(tmp_path / "b.csv", few)]
    for order in (paths, paths[::-1]):
        single = load(order, "dose")
        assert (single.spec.action_dim, single.spec.action_start) == (4, 1)
        assert {*single.columns["actions"].tolist()} == {0, 1, 2, 3}
        several = load(order, "dose,fan")
        assert (several.spec.action_sizes, several.spec.action_starts) == ((4, 2), (1, 0))
        assert several.columns["actions"][:, 0].tolist() == single.columns["actions"].tolist()


def test_no_file_alone_must_begin_with_1(tmp_path):
    paths = [write(tmp_path / "a.csv", [1] * 6), write(tmp_path / "b.csv", [2] * 6)]
    dataset = load(paths, "dose")
    assert (dataset.spec.action_dim, dataset.spec.action_start) == (2, 1)


def test_action_1_alone_is_not_the_first_one(tmp_path):
    paths = [write(tmp_path / name, [1] * 6) for name in ("a.csv", "b.csv")]
    for given in (paths[:1], paths):
        dataset = load(given, "dose")
        assert (dataset.spec.action_dim, dataset.spec.action_start) == (2, 0)


def test_missing_actions_do_not_hide_the_first_one(tmp_path):
    paths = [write(tmp_path / "a.csv", [1, None, 2] * 2), write(tmp_path / "b.csv", [3, None, 2] * 2)]
    dataset = load_transition_dataset(paths, columns={"obs": "temperature", "actions": "dose"}, allow=["nan"])
    assert (dataset.spec.action_dim, dataset.spec.action_start) == (3, 1)


def test_an_action_0_in_one_file_is_an_action_of_all(tmp_path):
    paths = [write(tmp_path / "a.csv", [1, 4, 3, 2, 1, 4]), write(tmp_path / "b.csv", [0, 1] * 3)]
    dataset = load(paths, "dose")
    assert (dataset.spec.action_dim, dataset.spec.action_start) == (5, 0)


@pytest.mark.parametrize("first", [0, 1])
def test_a_file_without_any_action_changes_no_choice(tmp_path, first):
    dose = [first, first + 1] * 3
    paths = [write(tmp_path / "a.csv", dose), write(tmp_path / "b.csv", [None] * 6)]
    columns = {"obs": "temperature", "actions": "dose"}
    for order in (paths, paths[::-1]):
        dataset = load_transition_dataset(order, columns=columns, allow=["nan"])
        assert (dataset.spec.action_kind, dataset.spec.action_start) == ("discrete", first)
        assert dataset.columns["actions"].tolist() == [0, 1] * 3
        box = EnvSpec((1,), "box", 1, action_shape=(1,), action_low=(-9.0,), action_high=(9.0,))
        assert load_transition_dataset(order, columns=columns, allow=["nan"], spec=box).spec.action_kind == "box"


def test_a_column_of_choices_without_values_begins_where_other_files_say(tmp_path, recwarn):
    paths = [write(tmp_path / "a.csv", [1, 2] * 3), write(tmp_path / "b.csv", [None] * 6)]
    for order in (paths, paths[::-1]):
        dataset = load_transition_dataset(order, columns={"obs": "temperature", "actions": "dose,fan"}, allow=["nan"])
        assert (dataset.spec.action_sizes, dataset.spec.action_starts) == ((2, 2), (1, 0))
    assert not recwarn.list
