"""Loading of datasets: reads, validates and, where allowed, repairs transitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from rl_training.data.datasets import validation
from rl_training.data.datasets.actions import Bounds
from rl_training.data.datasets.columns import to_array
from rl_training.data.datasets.transition_dataset import TransitionDataset
from rl_training.data.readers import read_columns
from rl_training.data.readers.rows import StoredColumns
from rl_training.types import Arrays, EnvSpec


def load_transition_dataset(
    source: str | Path, *, spec: EnvSpec | None = None, columns: Mapping[str, str] | None = None,
    action_range: Bounds | None = None, allow: Collection[str] = (),
) -> TransitionDataset:  # fmt: skip
    """Reads transitions from a file, a glob of files, or a Minari dataset by its directory or id.

    - `spec`: the environment that the data must match.
    - `columns`: names of the file's columns, such as `{"obs": "state"}`.
    - `action_range`: the bounds in which Box actions were recorded.
    - `allow`: problems to repair instead of raising DatasetError: nan, out_of_range, no_episode_end, crossing.
    """
    validation.check_allow(allow)
    stored = read_columns(source, columns=columns)
    try:
        rows = _validated(stored, allow)
        return TransitionDataset.from_dict(rows, spec=spec or stored.spec, action_range=action_range, allow=allow)
    except (TypeError, ValueError) as error:
        kept = len(stored.columns["obs"])
        text = f"{source}: {error}"
        if isinstance(error, validation.DatasetError) and kept < stored.rows:  # its message gives row numbers
            text += f" (row numbers count the {kept} of {stored.rows} rows that have a next observation)"
        raise type(error)(text) from error


def _validated(stored: StoredColumns, allow: Collection[str]) -> Arrays:
    rows = {name: to_array(name, column) for name, column in stored.columns.items()}
    if "no_episode_end" not in allow:
        validation.require_episode_ends(rows, stored.names.keys())
    rows = validation.drop_nan_rows(rows, allow)
    return (
        validation.split_crossings(rows, allow) if "next_obs" in stored.names else rows
    )  # derived next_obs cannot cross
