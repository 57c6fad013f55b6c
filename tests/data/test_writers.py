"""What is written is read back as it was, in every format."""

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.data import TransitionDataset, load_transition_dataset, save_npz, save_parquet, save_transition_dataset
from rl_training.types import EnvSpec

WIDE = EnvSpec((1,), "box", 1, action_shape=(1,), action_low=(-3.0,), action_high=(3.0,))


@pytest.mark.parametrize("name", ["data.npz", "data.parquet", "data-v0"])
def test_a_saved_dataset_comes_back_as_it_was_with_its_spec(tmp_path, counted, name):
    columns = {**counted([1, 2, 3], dones=(2,)), "actions": np.array([[-3.0], [0.75], [1.5]]), "weights": [1, 2, 3]}
    dataset = TransitionDataset.from_dict({**columns, "next_actions": columns["actions"]}, spec=WIDE)
    dataset = dataset.with_discounted_returns_to_go(0.5)
    save_transition_dataset(dataset, tmp_path / name)
    back = load_transition_dataset(tmp_path / name)
    assert back.spec == WIDE
    assert back.fingerprint() == dataset.fingerprint()


def test_actions_are_written_in_the_environments_units(tmp_path, counted):
    columns = {**counted([1, 2], dones=(1,)), "actions": np.array([[-3.0], [0.75]])}
    save_npz(TransitionDataset.from_dict(columns, spec=WIDE), tmp_path / "data.npz")
    assert np.load(tmp_path / "data.npz")["actions"].tolist() == [[-3.0], [0.75]]


@pytest.mark.parametrize("name", ["data.npz", "data.parquet", "data-v0"])
def test_small_pictures_and_discrete_actions_come_back(tmp_path, name):
    frames = torch.arange(4 * 2 * 3 * 3, dtype=torch.uint8).reshape(4, 2, 3, 3)
    values: dict[str, Any] = {
        "obs": frames[:3], "next_obs": frames[1:], "actions": [0, 2, 1], "rewards": [1.0, 2.0, 3.0], "dones": [0, 0, 1]
    }  # fmt: skip
    dataset = TransitionDataset.from_dict(values)
    save_transition_dataset(dataset, tmp_path / name)
    back = load_transition_dataset(tmp_path / name)
    assert back.spec == dataset.spec
    assert back.fingerprint() == dataset.fingerprint()


def test_parquet_is_written_in_groups_of_rows(tmp_path, counted, monkeypatch):
    monkeypatch.setattr("rl_training.data.writers.files.ROWS", 2)
    dataset = TransitionDataset.from_dict(counted([1, 2, 3, 4, 5], dones=(4,)))
    save_parquet(dataset, tmp_path / "data.parquet")
    assert load_transition_dataset(tmp_path / "data.parquet").fingerprint() == dataset.fingerprint()


@pytest.mark.parametrize("save", [save_npz, save_parquet, save_transition_dataset])
def test_a_suffix_that_is_not_written_is_rejected(tmp_path, counted, save):
    with pytest.raises(ValueError, match=r"\.npz|\.parquet"):
        save(TransitionDataset.from_dict(counted([1])), tmp_path / "data.csv")
