"""Transitions from HDF5 files of D4RL, OGBench and d3rlpy (version 1 stores rows, version 2 episodes)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.data.extras import import_h5py
from rl_training.data.readers.minari import read_minari
from rl_training.data.readers.names import matching_columns, other_names
from rl_training.data.readers.ogbench import choose_array_names, complete_arrays
from rl_training.data.readers.rows import (
    StoredColumns,
    complete_transitions,
    join_columns,
    require_numbers,
    stored_dtype,
)
from rl_training.types import Array, Arrays


def read_hdf5(path: Path, given: Mapping[str, str]) -> StoredColumns:
    h5py = import_h5py()
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise ValueError(f"{path} is not a readable HDF5 file: {error}") from error
    with file:
        if "episode_0" in file:
            return read_minari(path.parent, given)
        if "num_episodes" in file:
            return _read_d3rlpy_episodes(file, path)
        # Groups hold simulator states and policies, not columns.
        stored = {name: item for name, item in file.items() if isinstance(item, h5py.Dataset) and item.shape}
        names = choose_array_names(list(stored), given, path)
        groups = {name: matching_columns(pattern, stored) for name, pattern in names.items()}
        columns = {
            name: join_columns([_read(stored[part], part, path, name) for part in group], name)
            for name, group in groups.items()
        }
        if "episode_terminals" in stored:
            columns.update(_d3rlpy_columns(columns, stored.pop("episode_terminals")[()], file.get("discrete_action")))
            names["truncated"] = "episode_terminals"
        for name in other_names(list(stored), names, given):
            if stored[name].dtype.kind in "fiub" and len(stored[name]) == len(columns["obs"]):
                columns[name] = _read(stored[name], name, path)
    return complete_arrays(columns, names, path)


def _read(dataset: Any, name: str, path: Path, wanted: str = "") -> Array:
    if wanted == "episodes" and dataset.dtype.kind in "OS":
        return np.array(dataset.asstr()[()], str)
    require_numbers(name, dataset.dtype, path)
    column = np.empty(dataset.shape, stored_dtype(wanted, dataset.dtype))  # read directly into the final dtype
    if column.size:
        dataset.read_direct(column)
    return column


def _d3rlpy_columns(columns: Arrays, episode_ends: Array, discrete: Any) -> Arrays:
    # d3rlpy's CartPole dataset marks the last two rows of an episode as terminal; only the last one is.
    ends, terminals = episode_ends.reshape(-1) != 0, columns["dones"].reshape(-1) != 0
    is_discrete = discrete is not None and discrete[()]
    actions = columns["actions"].astype(np.int64) if is_discrete else columns["actions"]
    return {"dones": terminals & ends, "truncated": ends & ~terminals, "actions": actions}


def _read_d3rlpy_episodes(file: Any, path: Path) -> StoredColumns:
    """Reads observations_0, actions_0, rewards_0, terminated_0, observations_1, ...; T rows per episode of T steps."""
    episodes = range(int(file["num_episodes"][()]))
    names = {"obs": "observations", "actions": "actions", "rewards": "rewards"}
    if any(f"observations_{episode}" not in file for episode in episodes):
        raise ValueError(f"{path} has tuple observations, which are not supported; store one array per episode")
    columns = {
        name: np.concatenate([_read(file[f"{stored}_{episode}"], stored, path, name) for episode in episodes])
        for name, stored in names.items()
    }
    last = np.cumsum([len(file[f"rewards_{episode}"]) for episode in episodes]) - 1
    ends = np.zeros((2, len(columns["obs"])), bool)
    for row, episode in zip(last, episodes, strict=True):
        ends[0 if file[f"terminated_{episode}"][()] else 1, row] = True
    if columns["actions"].dtype.kind in "iu":
        columns["actions"] = columns["actions"].astype(np.int64)
    columns |= {"dones": ends[0], "truncated": ends[1]}
    return complete_transitions(columns, {**names, "dones": "terminated", "truncated": "terminated"}, path)
