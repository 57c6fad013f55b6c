"""Observations and actions survive the way into the library's form and back, exactly."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.data import TransitionDataset
from rl_training.data.spaces import Actions, Observations, batched, entry, leaves
from rl_training.envs.spaces import describe, image_layout
from rl_training.types import EnvSpec

SIDES = st.integers(1, 3)
FLOATS = st.sampled_from([np.float16, np.float32])  # float64 is rounded to float32
INTEGERS = st.sampled_from([np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
IMAGES = st.sampled_from([(1, 6, 6), (6, 5, 3), (5, 5), (7, 7, 3), (2, 5, 6, 3), (2, 3, 8, 8), (12, 8, 8), (5, 5, 5)])


@st.composite
def basic_spaces(draw: st.DrawFn) -> spaces.Space[Any]:
    shape = tuple(draw(st.lists(SIDES, max_size=3)))
    kind = draw(st.sampled_from(["float", "integer", "bool", "image", "discrete", "multi_discrete", "multi_binary"]))
    start = draw(st.integers(-3, 3))
    if kind == "float":
        return spaces.Box(-1e3, 1e3, shape, draw(FLOATS))
    if kind == "integer":
        return spaces.Box(0, 100, shape, draw(INTEGERS))
    if kind == "bool":
        return spaces.Box(0, 1, shape, np.bool_)
    if kind == "image":
        return spaces.Box(0, 255, draw(IMAGES), np.uint8)
    if kind == "discrete":
        return spaces.Discrete(draw(st.integers(1, 6)), start=start)
    if kind == "multi_discrete":
        nvec = np.array(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
        return spaces.MultiDiscrete(nvec, start=np.full(nvec.shape, start))
    return spaces.MultiBinary(shape or 2)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.text("abz_", min_size=1, max_size=3)
    return st.lists(inner, min_size=1, max_size=3).map(lambda parts: spaces.Tuple(parts)) | st.dictionaries(
        names, inner, min_size=1, max_size=3
    ).map(lambda parts: spaces.Dict(parts))


SPACES = st.recursive(basic_spaces(), containers, max_leaves=5)


def assert_equal(left: Any, right: Any) -> None:
    assert type(left) is type(right) or not isinstance(right, (dict, tuple))
    if isinstance(right, dict):
        assert left.keys() == right.keys()
        for name in right:
            assert_equal(left[name], right[name])
    elif isinstance(right, tuple):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_equal(one, other)
    else:
        np.testing.assert_array_equal(left, right)
        assert np.asarray(left).dtype == np.asarray(right).dtype


@settings(max_examples=150, deadline=None)
@given(SPACES, st.integers(0, 2**31), st.sampled_from([None, 1, 3]))
def test_observations_survive_the_way_there_and_back(space, seed, count):
    description = json.loads(json.dumps(describe(space)))
    converter = Observations(description)
    sampled = space if count is None else batch_space(space, count)
    sampled.seed(seed)
    obs = sampled.sample()
    rows = converter.rows(obs)
    lead = () if count is None else (count,)
    assert (rows.shape, rows.dtype) == ((*lead, *converter.shape), converter.dtype)
    assert_equal(converter.own(rows), obs)
    if count is not None:
        for index in range(count):
            np.testing.assert_array_equal(converter.rows(entry(obs, index)), rows[index])


@settings(max_examples=100, deadline=None)
@given(SPACES, st.integers(0, 2**31))
def test_a_list_of_observations_is_a_batch(space, seed):
    space.seed(seed)
    converter = Observations(describe(space))
    several = [space.sample() for _ in range(4)]  # more than a Tuple has parts
    if not isinstance(space, (spaces.Dict, spaces.Tuple)):
        assert batched(several, converter.space) is several
        return
    rows = converter.rows(batched(several, converter.space))
    np.testing.assert_array_equal(rows, np.stack([converter.rows(each) for each in several]))
    np.testing.assert_array_equal(converter.rows(batched(several[0], converter.space)), rows[0])


CHOICES = st.recursive(
    st.builds(spaces.Discrete, st.integers(1, 5), start=st.integers(-2, 2))
    | st.builds(spaces.MultiDiscrete, st.lists(st.integers(1, 4), min_size=1, max_size=3))
    | st.builds(spaces.MultiBinary, st.sampled_from([1, 3, (2, 2)]))
    | st.builds(spaces.Box, st.just(-2), st.just(3), st.sampled_from([(), (2,), (2, 2)]), st.just(np.int16)),
    containers, max_leaves=4,
)  # fmt: skip


def flat_action(action: Any, path: tuple[str | int, ...]) -> np.ndarray:
    for key in path:
        action = action[key]
    return np.ravel(action)


@settings(max_examples=150, deadline=None)
@given(CHOICES, st.integers(0, 2**31))
def test_actions_get_the_form_of_their_space(space, seed):
    description = json.loads(json.dumps(describe(space, actions=True)))
    actions = Actions(description)
    space.seed(seed)
    several = [space.sample() for _ in range(3)]
    flat = np.stack(
        [np.concatenate([flat_action(each, leaf.path) for leaf in leaves(description)]) for each in several]
    )
    for index, action in enumerate(several):
        assert_equal(actions.own(flat[index]), action)
        assert actions.own(flat[index]) in space
        assert_equal(entry(actions.own(flat), index), action)
    starts = np.concatenate([leaf.starts for leaf in actions.leaves])
    sizes = np.concatenate([leaf.sizes for leaf in actions.leaves])
    assert ((flat >= starts) & (flat < starts + sizes)).all()


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((84, 84), "HW"), ((4, 84, 84), "CHW"), ((84, 84, 4), "HWC"), ((210, 160, 3), "HWC"), ((3, 210, 160), "CHW"),
        ((7, 7, 3), "HWC"), ((10, 10, 6), "HWC"), ((12, 8, 8), "CHW"), ((8, 8, 111), "HWC"), ((9, 9, 9), "CHW"),
        ((4, 96, 96, 3), "NHWC"), ((4, 3, 96, 96), "NCHW"), ((128,), None), ((4, 4), None), ((3, 4, 84), None),
        ((4, 4, 3), None), ((), None), ((2, 2, 2, 9, 9), None),
    ],
)  # fmt: skip
def test_images_are_recognised_by_their_shape(shape, layout):
    assert image_layout(shape) == layout


@pytest.mark.parametrize("layout", ["HWC", "NHWC", "HW", "NCHW"])
def test_channels_come_first_and_frames_of_a_stack_follow_each_other(layout):
    sizes = {"N": 2, "H": 5, "W": 6, "C": 3}
    shape = tuple(sizes[letter] for letter in layout)
    image = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    rows = Observations({"type": "Box", "dtype": "uint8", "shape": shape, "layout": layout}).rows(image)
    full = image.reshape(
        [sizes[letter] if letter in layout else 1 for letter in ("NHWC" if layout[-1] != "W" else "NCHW")]
    )
    first = full if layout in ("HW", "NCHW") else full.transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(rows, first.reshape(-1, 5, 6))


def test_one_hot_parts_and_numbers_stand_in_the_documented_order():
    space = spaces.Dict(
        b=spaces.Discrete(3, start=1), a=spaces.Box(-9, 9, (2, 2)), B=spaces.MultiDiscrete(np.array([[2], [3]])),
        c=spaces.Tuple([spaces.MultiBinary(2), spaces.Text(9)]),
    )  # fmt: skip
    converter = Observations(describe(space))
    obs = {"b": 3, "a": [[1, 2], [3, 4]], "c": ([1, 0], "left out"), "B": [[1], [2]]}
    assert converter.rows(obs).tolist() == [0, 1, 0, 0, 1, 1, 2, 3, 4, 0, 0, 1, 1, 0]  # B, a, b, c


def test_bits_of_a_dataset_are_0_or_1():
    space = describe(spaces.Dict(b=spaces.MultiBinary(2), a=spaces.Box(-9, 9, (1,))))
    spec = EnvSpec((3,), "discrete", 2, obs_space=space)
    columns: dict[str, Any] = {
        "obs": [[7, 0, 1], [2, 1, 1]], "next_obs": [[2, 1, 1], [0, 0, 0]], "actions": [0, 1], "rewards": [1, 1],
        "dones": [0, 1],
    }  # fmt: skip
    assert len(TransitionDataset.from_dict(columns, spec=spec)) == 2
    wrong = {**columns, "next_obs": [[2, 1, 1], [0, 0, 3]]}
    message = "next_obs of a MultiBinary space must hold 0 or 1, entry 2 of row 1 holds 3"
    with pytest.raises(ValueError, match=message):
        TransitionDataset.from_dict(wrong, spec=spec)
    with pytest.raises(ValueError, match=r"obs of .* entry 1 of row 0 holds 0\.5"):
        TransitionDataset.from_dict({**columns, "obs": np.array([[7, 0.5, 1], [2, 1, 1]])}, spec=spec)


@pytest.mark.parametrize(
    ("space", "obs", "message"),
    [
        (spaces.Discrete(4), 4, "obs must hold integers from 0 to 3, got 4"),
        (spaces.Discrete(4, start=-1), [0, 3], r"obs must hold integers from -1 to 2, got \[0, 3\]"),
        (spaces.Discrete(4), 1.5, "obs must hold integers from 0 to 3, got 1.5"),
        (spaces.MultiDiscrete([2, 3]), [1, 3], r"integers from 0 to 1, 0 to 2, got \[1, 3\]"),
        (spaces.MultiDiscrete([2, 3]), [1], r"obs must end in shape \(2,\), got \(1,\)"),
        (spaces.MultiBinary(2), [[0, 1], [2, 0]], r"obs must hold 0 and 1 only, got \[\[0, 1\], \[2, 0\]\]"),
        (spaces.Dict(a=spaces.MultiBinary(1)), {"a": [0.5]}, r"a must hold 0 and 1 only, got \[0\.5\]"),
        (spaces.Tuple([spaces.Discrete(2)] * 2), (1,), "obs must be a tuple of 2 parts"),
        (spaces.Dict(a=spaces.Dict(b=spaces.Discrete(2))), {"a": {"c": 1}}, r"a must be a dict of b, got \['c'\]"),
        (spaces.Dict(a=spaces.Discrete(2)), {"a": "one"}, "a must hold numbers, got"),
        (spaces.Dict(a=spaces.Box(-1, 1, (2,))), {"a": [[1, 2], [1]]}, r"a must hold observations of one shape"),
        (spaces.Box(0, 2**31, (1,), np.int64), [2**24 + 1], r"holds \[16777217\], but float32 holds integers exactly"),
        (spaces.Box(-1, 1, (2, 1)), [[np.nan], [0]], "obs holds NaN or infinite values"),
        (spaces.Box(0, 255, (5, 5), np.uint8), np.full((5, 5), 0.5), r"pixels must be integers in 0\.\.255"),
    ],
)  # fmt: skip
def test_values_outside_their_space_are_refused_by_name(space, obs, message):
    with pytest.raises(ValueError, match=message):
        Observations(describe(space)).rows(obs)
