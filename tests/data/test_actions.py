"""Actions cross between the environment's units and the library's without loss, or are refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rl_training.data.datasets.actions import (
    derive_spec,
    guessed_actions,
    scale_actions,
    unscale_actions,
    with_action_range,
)
from rl_training.types import EnvSpec

LOPSIDED = EnvSpec((1,), "box", 2, action_shape=(2,), action_low=(-2.0, 0.0), action_high=(2.0, 10.0))
THREE = EnvSpec((1,), "discrete", 3)
OBS = np.zeros((3, 1), np.float32)


def test_box_actions_are_scaled_by_each_dimensions_bounds_and_back():
    actions = np.array([[-2.0, 0.0], [1.0, 7.5], [2.0, 10.0]])
    scaled = scale_actions(actions, LOPSIDED)
    assert scaled.tolist() == [[-1, -1], [0.5, 0.5], [1, 1]]
    assert unscale_actions(torch.from_numpy(scaled), LOPSIDED).tolist() == actions.tolist()


def test_actions_outside_the_bounds_are_refused_with_count_and_size():
    actions = np.array([[0.0, 5.0], [2.5, 5.0], [3.0, 5.0]])
    with pytest.raises(
        ValueError, match=r"in 2 of 3 rows; the farthest is row 2 with 3, allowed is -2 to 2; .*--allow"
    ):
        scale_actions(actions, LOPSIDED)


def test_actions_outside_the_bounds_are_clipped_where_that_is_asked():
    assert scale_actions(np.array([[-7.0, 5.0], [2.0, 11.0]]), LOPSIDED, clip=True).tolist() == [[-1, 0], [1, 1]]


def test_a_range_stands_for_all_dimensions_or_for_each():
    assert with_action_range(LOPSIDED, (-1, 1)).action_low == (-1.0, -1.0)
    assert with_action_range(LOPSIDED, ([-1, 0], [1, 5])).action_high == (1.0, 5.0)
    with pytest.raises(ValueError, match="action_range has 3 bounds, the actions have 2 dimensions"):
        with_action_range(LOPSIDED, ([-1, 0, 0], 1))
    with pytest.raises(ValueError, match=r"action_range must be \[low, high\] with low < high, got \[3, -3\]"):
        with_action_range(LOPSIDED, (3, -3))


def test_a_range_is_not_for_discrete_actions():
    with pytest.raises(ValueError, match=r"action_range is for Box actions, but the actions are Discrete\(3\)"):
        with_action_range(THREE, (-1, 1))


def test_whole_numbers_with_a_range_are_box_actions():
    spec = with_action_range(derive_spec(OBS, np.array([[-1], [0], [2]]), (-2, 2)), (-2, 2))
    assert (spec.action_kind, spec.action_low, spec.action_high) == ("box", (-2.0,), (2.0,))


def test_an_overshoot_below_a_thousandth_is_clipped():
    assert scale_actions(np.array([[2.001, 5.0]]), LOPSIDED).tolist() == [[1, 0]]


def test_actions_of_another_width_are_rejected():
    with pytest.raises(ValueError, match=r"actions have 3 dimensions, expected 2, as in .* agent's training data"):
        scale_actions(np.zeros((4, 3), np.float32), LOPSIDED)


def test_endless_bounds_are_rejected():
    endless = EnvSpec((1,), "box", 1, action_shape=(1,), action_low=(-float("inf"),), action_high=(float("inf"),))
    with pytest.raises(ValueError, match="must be finite"):
        scale_actions(np.zeros((2, 1), np.float32), endless)


def test_discrete_actions_become_int64_even_from_whole_floats_in_brackets():
    indices = scale_actions(np.array([[0.0], [2.0]]), THREE)
    assert indices.tolist() == [0, 2]
    assert indices.dtype == np.int64


@pytest.mark.parametrize("wrong", [3, -1, 0.5])
def test_discrete_actions_outside_the_range_are_refused_by_row(wrong):
    with pytest.raises(
        ValueError, match=rf"integers from 0 to 2, as in .*; 1 of 2 rows are not; the first is row 1 with {wrong}"
    ):
        scale_actions(np.array([0, wrong]), THREE)


def test_discrete_actions_that_count_from_1_are_refused_in_their_own_numbers():
    from_one = replace(THREE, action_start=1)
    assert scale_actions(np.array([1, 3]), from_one).tolist() == [0, 2]
    message = (
        "integers from 1 to 3, as in the environment or in the agent's training data; 1 of 2 rows are not; the first "
        "is row 1 with 4; renumber the actions from 1, or pass data of the same task"
    )
    with pytest.raises(ValueError, match=message):
        scale_actions(np.array([1, 4]), from_one)


def test_choices_are_given_back_in_the_numbers_of_their_own_starts():
    spec = EnvSpec((1,), "multi_discrete", 2, action_shape=(2,), action_sizes=(3, 2), action_starts=(5, -1))
    assert unscale_actions(torch.tensor([[0, 1], [2, 0]]), spec).tolist() == [[5, 0], [7, -1]]


def test_small_float_actions_are_taken_for_a_unit_box():
    spec = derive_spec(OBS, np.array([[0.1], [-0.3], [0.2]]))
    assert (spec.action_kind, spec.action_low, spec.action_high) == ("box", (-1.0,), (1.0,))


def test_larger_float_actions_give_symmetric_bounds_a_dimension():
    spec = derive_spec(OBS, np.array([[0.5, -3.0, 0.0], [0.25, 1.0, 0.0], [0.0, 2.0, 0.0]]))
    assert spec.action_high == (0.5, 3.0, 1.0)
    assert spec.action_low == (-0.5, -3.0, -1.0)


def test_integer_actions_are_taken_for_discrete():
    spec = derive_spec(OBS, np.array([0, 3, 1]))
    assert (spec.action_kind, spec.action_dim) == ("discrete", 4)


@pytest.mark.parametrize(
    ("actions", "found"),
    [
        ([0, 50, 100], "only 3 of 101 choices"),
        ([0, 3], "only 2 of 4 choices"),
        ([0, 2], None),
        ([7, 7], None),
        (np.arange(21) * 9, None),  # reported as amounts
        ([[0, 1], [1, 9]], "only 2 of 10 choices"),
    ],
)
def test_choices_that_mostly_never_occur_are_reported(actions, found):
    texts = [text for kind, text, _ in guessed_actions(np.array(actions)) if kind == "unused_choices"]
    assert texts == ([f"{found} occur in the actions, and the policy may choose the others too"] if found else [])
