"""Datasets from files: what is read is judged, mended where that is allowed, and made into tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from rl_training.data.datasets.actions import Bounds
from rl_training.data.datasets.columns import to_array
from rl_training.data.datasets.repair import drop_nan_rows, split_crossings
from rl_training.data.datasets.transition_dataset import TransitionDataset
from rl_training.data.datasets.validation import DatasetError, check_allow, require_episode_ends
from rl_training.data.readers import read_columns
from rl_training.data.readers.rows import StoredColumns
from rl_training.types import Arrays, EnvSpec


def load_transition_dataset(
    source: str | Path,
    *,
    spec: EnvSpec | None = None,
    columns: Mapping[str, str] | None = None,
    action_range: Bounds | None = None,
    allow: Collection[str] = (),
) -> TransitionDataset:
    """Read transitions from a file, a glob of files, or a Minari dataset by its directory or id.

    `spec` says which environment they must fit; `columns` which of the file's columns is which (`{"obs": "state"}`);
    `action_range` the bounds that Box actions were recorded in; `allow` which faults to mend instead of refuse.
    """
    check_allow(allow)
    stored = read_columns(source, columns=columns)
    try:
        rows = _sound(stored, allow)
        return TransitionDataset.from_dict(rows, spec=spec or stored.spec, action_range=action_range, allow=allow)
    except (TypeError, ValueError) as error:
        known = len(stored.columns["obs"])
        told = isinstance(error, DatasetError) and known < stored.rows  # then it speaks of rows
        counted = f" (rows counted among the {known} of {stored.rows} with a successor)" if told else ""
        raise type(error)(f"{source}: {error}{counted}") from error


def _sound(stored: StoredColumns, allow: Collection[str]) -> Arrays:
    """What the rows tell of their episodes must be right: refused or mended here, while the file is known."""
    rows = {name: to_array(name, column) for name, column in stored.columns.items()}
    if "no_episode_end" not in allow:
        require_episode_ends(rows, stored.names.keys())
    rows = drop_nan_rows(rows, allow)
    if "next_obs" in stored.names:  # made from the following rows it fits them
        rows = split_crossings(rows, allow)
    return rows
