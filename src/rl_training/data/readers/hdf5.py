"""Transitions from HDF5, as D4RL and d3rlpy (version 1) lay them out."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.readers.rows import Arrays, complete_transitions, find_names
from rl_training.types import EnvSpec


def read_hdf5(path: Path, spec: EnvSpec | None) -> TransitionDataset:
    stored = _load(path)
    columns = {ours: stored[name] for ours, name in find_names(stored, path).items()}
    if "episode_terminals" in stored:
        columns.update(_d3rlpy_columns(stored))
    return TransitionDataset.from_dict(complete_transitions(columns, path), spec=spec)


def _d3rlpy_columns(stored: Arrays) -> Arrays:
    # d3rlpy's CartPole set marks the last two rows of an episode as terminal; only the last one is.
    ends = stored["episode_terminals"].reshape(-1) != 0
    terminals = stored["terminals"].reshape(-1) != 0
    columns = {"dones": terminals & ends, "truncated": ends & ~terminals}
    if stored.get("discrete_action", np.False_):
        columns["actions"] = stored["actions"].astype(np.int64)
    return columns


def _load(path: Path) -> Arrays:
    try:
        import h5py
    except ImportError as error:
        raise ImportError('reading HDF5 needs h5py: pip install "rl-training[data]"') from error
    try:
        with h5py.File(path, "r") as file:
            # Groups hold simulator states and policies, no column of a transition.
            return {name: np.asarray(item[()]) for name, item in file.items() if isinstance(item, h5py.Dataset)}
    except OSError as error:
        raise ValueError(f"{path} is not a readable HDF5 file: {error}") from error
