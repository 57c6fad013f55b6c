"""inspect_columns reports actions out of range, guessed bounds, and actions that may be of another kind."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from rl_training.data import load_transition_dataset
from rl_training.data.datasets.actions import derive_spec
from rl_training.data.datasets.validation import DatasetError
from rl_training.types import EnvSpec

sys.path.insert(0, str(Path(__file__).parent))
from column_checks import TORQUE, inspect, kinds  # type: ignore[import-not-found]

sys.path.pop(0)


def test_a_range_given_by_hand_goes_before_the_environments(counted):
    columns = counted([1, 2, 3], dones=(2,))  # actions -1, 0, 1
    assert kinds(inspect(columns, spec=TORQUE, action_range=(-0.5, 1.0))) == [("out_of_range", "error")]
    assert kinds(inspect(columns, spec=TORQUE, action_range=((-1.0,), (1.0,)))) == []


def test_next_actions_must_lie_in_the_range_too(counted):
    columns = counted([1, 2, 3], dones=(2,)) | {"next_actions": np.full((3, 1), 3.0, np.float32)}
    (finding,) = inspect(columns, spec=TORQUE).findings
    assert (finding.kind, finding.severity) == ("out_of_range", "error")
    assert finding.text.startswith("next_actions are outside their bounds in 3 of 3 rows")


@pytest.mark.parametrize(("actions", "found"), [([0, -1, 2], "-1 to 2"), ([0, -1, 0], "-1 to 0")])
def test_choices_below_0_are_reported_as_they_are_and_can_be_those_of_an_environment(counted, actions, found):
    columns = counted([1, 2, 3], dones=(2,)) | {"actions": np.array(actions)}
    (finding,) = inspect(columns).findings
    assert finding.text == (
        f"actions are integers from {found}, but Discrete actions start at 0 unless the environment is known: "
        "1 of 3 rows are negative, the first is row 1"
    )
    assert "name the environment if its actions start at -1, or set --action-range" in finding.fix
    assert inspect(columns, spec=EnvSpec((1,), "discrete", 4, action_start=-1)).trainable
    assert inspect(columns, action_range=(-2.0, 2.0)).trainable


def test_bounds_that_must_be_guessed_are_reported(counted):
    columns = counted([1, 2, 3], dones=(2,))
    columns["actions"] *= 30
    (finding,) = inspect(columns).findings
    assert (finding.kind, finding.severity) == ("guessed_bounds", "warning")
    assert finding.text == "the action bounds are unknown; the largest magnitude in the data (30) is used"


def test_bounds_of_actions_that_are_never_negative_are_reported_below_1_too(counted):
    columns = counted([1, 2, 3], dones=(2,)) | {"actions": np.array([[0.0], [0.5], [1.0]], np.float32)}
    (finding,) = inspect(columns).findings
    assert finding.text == "the action bounds are unknown; -1 to 1 is used, although no action is below 0"
    assert kinds(inspect(columns, action_range=(0.0, 1.0))) == []


@pytest.mark.parametrize(
    ("actions", "found"),
    [([0, 1, 2], True), ([0, 1, 1], True), ([0, 1, 1.5], False), ([-1, 0, 1], False), ([2, 2, 2], False)],
)
def test_whole_numbers_in_floats_may_be_discrete_actions(counted, actions, found):
    columns = counted([1, 2, 3], dones=(2,)) | {"actions": np.array(actions, np.float32)}
    texts = [each.text for each in inspect(columns).findings if each.kind == "whole_actions"]
    number = len({*actions})
    text = f"all actions are floats of {number} whole numbers, and they are read as Box actions"
    assert texts == ([text] if found else [])


@pytest.mark.parametrize(
    ("second", "found"), [([0, 1, 2], True), ([0, 0, 0], True), ([0, 1, 1.5], False), ([0, 1, -1], False)]
)
def test_floats_of_choices_in_several_columns_are_reported_as_box_actions(counted, second, found):
    actions = np.array([[1, 2, 3], second], np.float32).T
    findings = inspect(counted([1, 2, 3], dones=(2,)) | {"actions": actions}).findings
    texts = [each.text for each in findings if each.kind == "whole_actions"]
    assert texts == ["all actions are floats of whole numbers in 2 columns, and they are read as Box actions"] * found


def test_integers_in_several_columns_are_choices_unless_they_have_a_range(counted):
    columns = counted([1, 2, 3], dones=(2,)) | {"actions": np.array([[0, 1], [1, 2], [2, 0]])}
    assert inspect(columns).findings == ()
    assert inspect(columns, action_range=(0.0, 2.0)).findings == ()
    (finding,) = inspect({**columns, "actions": columns["actions"] - 1}).findings
    assert finding.text == (
        "actions are integers from -1 to 1, but MultiDiscrete actions start at 0 unless the environment is known: "
        "2 of 3 rows are negative, the first is row 0"
    )


def test_integers_of_another_number_of_choices_are_refused(counted):
    columns = counted([1, 2, 3], dones=(2,)) | {"actions": np.array([[0, 1], [1, 2], [2, 0]])}
    three = EnvSpec((1,), "multi_discrete", 3, action_shape=(3,), action_sizes=(3, 3, 2), action_starts=(0, 0, 0))
    for spec, text in ((EnvSpec((1,), "discrete", 3), "one integer"), (three, "3 integers")):
        (finding,) = inspect(columns, spec=spec).findings
        assert f"must be {text} per row, got shape (3, 2)" in finding.text
        assert "--action-range LOW,HIGH" in finding.fix


@pytest.mark.parametrize(
    ("actions", "found"),
    [
        ([[1, 0, 0], [0, 0, 1], [0, 1, 0]], True),
        ([[1, 0, 0], [0, 1, 1], [0, 1, 0]], False),
        ([[1, 0, 0], [0, 0, 1], [0, 0, 0]], False),
        ([[1, 0], [0, 1], [0, 1]], False),  # two switches may exclude each other
    ],
)
def test_one_hot_integers_are_reported(counted, actions, found):
    findings = inspect(counted([1, 2, 3], dones=(2,)) | {"actions": np.array(actions)}).findings
    assert [each.kind for each in findings if each.kind != "constant_column"] == ["one_hot_actions"] * found


def test_training_reports_guessed_bounds_too(counted, tmp_path):
    np.savez(tmp_path / "data.npz", **(counted([1, 2, 3], dones=(2,)) | {"actions": np.array([[0.0], [0.5], [1.0]])}))
    (note,) = load_transition_dataset(tmp_path / "data.npz").notes
    assert note.startswith("the action bounds are unknown; -1 to 1 is used, although no action is below 0; set them")
    assert load_transition_dataset(tmp_path / "data.npz", action_range=(0, 1)).notes == ()


@pytest.mark.parametrize(("number", "found"), [(20, False), (21, True)])
def test_many_integer_actions_may_be_amounts(counted, number, found):
    columns = counted([1.0, 2.0] * number, dones=(2 * number - 1,)) | {"actions": np.arange(2 * number) % number}
    texts = [each.text for each in inspect(columns).findings if each.kind == "whole_actions"]
    assert texts == [f"the actions are {number} whole numbers, and they are read as choices without an order"] * found
    assert all(each.kind != "whole_actions" for each in inspect(columns, action_range=(0, number)).findings)


@pytest.mark.parametrize(
    ("largest", "rows", "refused"), [(9_999, 5, False), (10_000, 5, True), (10_000, 10_001, False)]
)
def test_integers_such_as_ids_are_no_discrete_actions(largest, rows, refused):
    actions = np.full(rows, 3)
    actions[0] = largest
    with pytest.raises(DatasetError, match="integers up to 10,000 in 5 rows") if refused else nullcontext():
        assert derive_spec(np.zeros((rows, 2)), actions).action_dim == largest + 1
