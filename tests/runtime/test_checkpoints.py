"""Saving, reading and pruning checkpoints."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

from rl_training.runtime.checkpoints.format import CheckpointError
from rl_training.runtime.checkpoints.reading import list_checkpoints, newest_checkpoint, read_checkpoint
from rl_training.runtime.checkpoints.writing import save_checkpoint

STATE = {"learner": {"weight": torch.arange(600.0)}, "sampler": {"state": torch.arange(500, dtype=torch.uint8), "n": 7}}


def save(directory: Path, step: int, value: float = 0.0, **options: Any) -> Path:
    return save_checkpoint(directory, step, {"learner": {"weight": torch.full((3,), value)}}, info={}, **options)


def steps(directory: Path) -> list[int]:
    return [read_checkpoint(path).step for path in list_checkpoints(directory)]


def fail_on_damage(message: str) -> None:
    pytest.fail(message)


def same(left: Any, right: Any) -> bool:
    """Equal structure, types and values; NaN equals NaN."""
    if isinstance(left, Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and (left == right or left != left)


@pytest.mark.parametrize(
    "value",
    [
        {"a": {"b": torch.rand(2, 3)}, "a/b": torch.rand(4), "a~1b": torch.rand(1), "": torch.ones(1)},
        [torch.tensor(3.0), [torch.tensor([True, False])], {"0": torch.tensor([2**62])}, []],
        {"scalar": torch.tensor(7), "none": torch.empty(0, 5), "bytes": torch.tensor([255], dtype=torch.uint8)},
        {"half": torch.ones(3, dtype=torch.bfloat16), "turned": torch.arange(6.0).reshape(2, 3).T},
        {"$tensor": "x", "$$": {"$float": 1}, "text": "\u00e9\ud800\n", "big": 2**200, "small": -0.1, "no": None},
        {"best": -math.inf, "worst": math.inf, "unknown": math.nan},
        torch.arange(3),
        5,
        {},
    ],
)
def test_nested_states_are_restored(tmp_path: Path, value: Any) -> None:
    path = save_checkpoint(tmp_path, 1, {"other": 1, "group": value}, info={})
    assert same(read_checkpoint(path).state, {"other": 1, "group": value})


def test_arrays_are_restored_as_tensors_tuples_as_lists_and_numpy_scalars_as_numbers(tmp_path: Path) -> None:
    backwards = np.arange(3, dtype=">i4")[::-1]
    path = save_checkpoint(tmp_path, 1, {"env": {"a": backwards, "b": (1, 2), "c": np.float32(0.5)}}, info={})
    assert same(read_checkpoint(path).group("env"), {"a": torch.tensor([2, 1, 0]).int(), "b": [1, 2], "c": 0.5})


def test_views_of_one_storage_are_restored_as_separate_tensors(tmp_path: Path) -> None:
    weight = torch.arange(4.0, requires_grad=True)
    path = save_checkpoint(tmp_path, 1, {"learner": {"a": weight, "b": weight, "c": weight[1:]}}, info={})
    learner = read_checkpoint(path).group("learner")
    learner["a"].zero_()
    assert [learner["b"].tolist(), learner["c"].tolist()] == [[0, 1, 2, 3], [1, 2, 3]]


def test_the_files_are_plain_safetensors_and_json(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 123, {"learner": {"net.weight": torch.ones(2), "updates": 5}}, info={"threads": 1})
    assert path == tmp_path / "step_000000123"
    assert sorted(file.name for file in path.iterdir()) == ["learner.safetensors", "manifest.json", "state.json"]
    assert safetensors.torch.load_file(path / "learner.safetensors")["net.weight"].tolist() == [1, 1]
    state = json.loads((path / "state.json").read_text())
    assert state == {"learner": {"net.weight": {"$tensor": "net.weight"}, "updates": 5}}
    assert read_checkpoint(path).info == {"threads": 1}


def test_equal_states_give_equal_bytes(tmp_path: Path) -> None:
    weights = {name: torch.full((2,), 1.0) for name in "abcdef"}
    state = {"learner": weights, "best": math.nan}
    turned = {"best": math.nan, "learner": dict(reversed(weights.items()))}
    first = save_checkpoint(tmp_path / "1", 5, state, info={"x": 1, "y": 2})
    second = save_checkpoint(tmp_path / "2", 5, turned, info={"y": 2, "x": 1})
    for file in first.iterdir():
        assert file.read_bytes() == (second / file.name).read_bytes()


def test_state_json_is_valid_json_even_with_a_nan(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 1, {"best": math.nan}, info={})

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert json.loads((path / "state.json").read_text(), parse_constant=refuse) == {"best": {"$float": "nan"}}


def test_a_group_is_read_alone_after_all_files_are_verified(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 1, STATE, info={})
    checkpoint = read_checkpoint(path)
    (path / "sampler.safetensors").unlink()
    assert torch.equal(checkpoint.group("learner")["weight"], torch.arange(600.0))
    with pytest.raises(CheckpointError, match=r"sampler\.safetensors is missing"):
        read_checkpoint(path)
    with pytest.raises(CheckpointError, match="no group 'actor'; it has learner, sampler"):
        checkpoint.group("actor")


def test_a_checkpoint_replaced_after_verification_is_not_mixed_with_the_new_one(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(save(tmp_path, 1, value=1.0))
    save(tmp_path, 1, value=2.0)
    with pytest.raises(CheckpointError, match="was replaced during reading; read it again"):
        checkpoint.group("learner")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"learner": {"a": {0: 1}}}, "keys must be strings .* got 0 in learner/a"),
        ({"learner": {"__metadata__": 1}}, "other than '__metadata__'"),
        ({"learner": [object()]}, "got object in learner/0"),
        ({"learner": np.array(["text"])}, "got <U4 in learner"),
        ({"learner": torch.ones(1, dtype=torch.complex128)}, "got torch.complex128 in learner"),
        ({"../learner": 1}, "must consist of lower-case letters"),
    ],
)
def test_unsupported_values_are_refused_before_anything_is_written(
    tmp_path: Path, state: dict[str, Any], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        save_checkpoint(tmp_path, 1, state, info={})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [{"info": {"loss": math.nan}}, {"info": {"path": Path()}}])
def test_info_must_hold_only_json_values(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match="info must hold only JSON values"):
        save_checkpoint(tmp_path, 1, {}, **options)


def test_invalid_step_and_keep_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="step must be 0 or more, got -1"):
        save(tmp_path, -1)
    with pytest.raises(ValueError, match="keep must be 1 or more, got 0"):
        save(tmp_path, 1, keep=0)


def test_pruning_keeps_the_newest_and_the_protected_checkpoints(tmp_path: Path) -> None:
    for step in (100, 200, 300, 400, 1_000_000_000):
        save(tmp_path, step, keep=2, protect={200})
    assert steps(tmp_path) == [200, 400, 1_000_000_000]


def test_saving_never_removes_the_new_checkpoint_or_later_ones(tmp_path: Path) -> None:
    save(tmp_path, 300)
    save(tmp_path, 100, keep=1)
    save(tmp_path, 200, keep=1)
    assert steps(tmp_path) == [200, 300]


def test_saving_a_step_again_replaces_it_and_removes_temporary_directories(tmp_path: Path) -> None:
    save(tmp_path, 1, value=1.0)
    (tmp_path / ".tmp-123").mkdir()
    path = save(tmp_path, 1, value=2.0)
    assert read_checkpoint(path).group("learner")["weight"].tolist() == [2, 2, 2]
    assert os.listdir(tmp_path) == ["step_000000001"]


def test_an_interrupted_replacement_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 1, value=1.0).rename(tmp_path / "step_000000001.old")
    [path] = list_checkpoints(tmp_path)
    assert read_checkpoint(path).group("learner")["weight"].tolist() == [1, 1, 1]
    save(tmp_path, 1, value=2.0)
    assert os.listdir(tmp_path) == ["step_000000001"]


def test_without_checkpoints_newest_checkpoint_returns_none(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path / "nowhere", fail_on_damage) is None
    assert newest_checkpoint(tmp_path, fail_on_damage) is None
