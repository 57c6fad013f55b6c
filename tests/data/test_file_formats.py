"""Reads the files of d3rlpy, and refuses files that cannot be read in one sentence."""

import sys

import h5py
import numpy as np
import pytest

from rl_training.data import load_transition_dataset


def test_a_d3rlpy_episode_end_that_is_no_terminal_is_a_time_limit(tmp_path):
    with h5py.File(tmp_path / "replay.h5", "w") as file:
        file["observations"] = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]])
        file["actions"] = np.array([0.0, 1.0, 0.0, 1.0, 1.0, 2.0])
        file["rewards"] = np.ones(6)
        file["terminals"] = np.array([0, 1, 1, 0, 0, 0])  # set one row too early as well, as d3rlpy's CartPole has it
        file["episode_terminals"] = np.array([0, 0, 1, 0, 0, 1])
        file["discrete_action"] = True
    dataset = load_transition_dataset(tmp_path / "replay.h5")
    assert dataset.columns["dones"].tolist() == [0, 0, 1, 0, 0]
    assert dataset.columns["truncated"].tolist() == [0, 0, 0, 0, 1]
    assert dataset.columns["actions"].tolist() == [0, 1, 0, 1, 1]
    assert (dataset.spec.action_kind, dataset.spec.action_dim) == ("discrete", 2)


def test_an_unknown_format_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(ValueError, match=r"supported are \.npz, \.hdf5, \.h5"):
        load_transition_dataset(tmp_path / "data.xyz")


def test_a_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^dataset file .*data\.npz not found$"):
        load_transition_dataset(tmp_path / "data.npz")


@pytest.mark.parametrize("name", ["data.npz", "data.hdf5"])
def test_a_file_of_something_else_is_one_sentence(tmp_path, name):
    (tmp_path / name).write_bytes(b"not a dataset")
    with pytest.raises(ValueError, match="is not a readable"):
        load_transition_dataset(tmp_path / name)


def test_pickled_arrays_are_rejected(tmp_path, counted):
    np.savez(tmp_path / "data.npz", **counted([1, 2]), infos=np.array([{}, {}], dtype=object))
    with pytest.raises(ValueError, match="column 'infos' is not an array of numbers: Object arrays cannot be loaded"):
        load_transition_dataset(tmp_path / "data.npz")


def test_without_h5py_the_install_command_is_reported(tmp_path, monkeypatch):
    (tmp_path / "data.h5").touch()
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r'pip install "rl-training\[data\]"'):
        load_transition_dataset(tmp_path / "data.h5")


def test_a_d3rlpy_file_of_episodes_is_read_as_its_rows(tmp_path):
    with h5py.File(tmp_path / "replay.h5", "w") as file:  # as ReplayBuffer.dump of version 2 writes it
        file["columns"] = ["observations", "actions", "rewards", "terminated"]
        file["num_episodes"], file["version"] = 2, "2.1"
        for number, (obs, terminated) in enumerate([([[0.0], [1.0], [2.0]], True), ([[10.0], [11.0], [12.0]], False)]):
            file[f"observations_{number}"] = np.array(obs, np.float32)
            file[f"actions_{number}"] = np.array([[0], [1], [2]], np.int32)
            file[f"rewards_{number}"] = np.ones((3, 1), np.float32)
            file[f"terminated_{number}"] = terminated
    dataset = load_transition_dataset(tmp_path / "replay.h5")
    assert dataset.columns["obs"].squeeze(1).tolist() == [0, 1, 2, 10, 11]  # where row 12 leads nobody knows
    assert dataset.columns["next_obs"].squeeze(1).tolist() == [1, 2, 2, 11, 12]
    assert dataset.columns["dones"].tolist() == [0, 0, 1, 0, 0]
    assert dataset.columns["truncated"].tolist() == [0, 0, 0, 0, 1]
    assert (dataset.spec.action_kind, dataset.spec.action_dim) == ("discrete", 3)
