"""From the stored columns of a file to valid transitions: repairs that are allowed, names, and rows left out."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from rl_training.data.datasets import validation
from rl_training.data.datasets.columns import to_array
from rl_training.data.readers.rows import LeftOut, StoredColumns
from rl_training.types import Array, Arrays, EnvSpec

NOT_FINITE = "a value is missing, NaN or infinite"
BRIDGES = "next_obs belongs to another episode"


CUT, EPISODE = "cut", "file_episode"  # columns while rows are repaired: truncated by a dropped row; before any drop


def repaired(stored: StoredColumns, allow: Collection[str]) -> tuple[Arrays, Array]:
    """Returns the columns after the repairs that `allow` names, and the episode of the file that each row belongs to.

    Raises DatasetError for other problems.
    """
    validation.require_rewards(stored.columns)
    rows = {name: to_array(name, column) for name, column in stored.columns.items()}
    if "no_episode_end" not in allow:
        validation.require_episode_ends(rows, stored.names.keys())
    ends = rows["dones"] + rows["truncated"] > 0
    episodes = np.cumsum(ends) - ends if stored.trajectories is None else stored.trajectories
    rows = validation.drop_nan_rows({**rows, CUT: rows["truncated"], EPISODE: episodes}, allow)
    rows = whole_actions({**rows, CUT: rows["truncated"] > rows[CUT]}, stored)
    if "next_obs" in stored.names:  # derived ones cannot cross
        rows = validation.split_crossings(rows, allow)
    cut, episode = rows.pop(CUT), rows.pop(EPISODE)
    if stored.trajectories is not None:
        return rows, episode
    ends = (rows["dones"] + rows["truncated"] > 0) & ~(cut & (np.diff(episode, append=-1) == 0))
    return rows, np.cumsum(ends) - ends


def whole_actions(columns: Arrays, stored: StoredColumns) -> Arrays:
    """Integers of which some were missing are floats; once these rows are dropped, they are integers again."""
    if not stored.labels.integer_actions:
        return columns
    names = columns.keys() & {"actions", "next_actions"}
    return {**columns, **{name: columns[name].astype(np.int64) for name in names}}


def rows_left_out(stored: StoredColumns, allow: Collection[str]) -> tuple[LeftOut, ...]:
    """The rows that are not used after the repairs that `allow` names."""
    columns = stored.columns
    lost = np.logical_or.reduce([validation.find_not_finite(column) for column in columns.values()])
    found = [*stored.left_out, *_left_out(NOT_FINITE, stored, lost & ("nan" in allow))]
    if "crossing" in allow and "next_obs" in stored.names:
        bridges = np.zeros_like(lost)
        names = ("obs", "next_obs", "dones", "truncated")
        bridges[~lost] = validation.find_crossings(*(columns[name][~lost] for name in names))[1]
        found += _left_out(BRIDGES, stored, bridges)
    return tuple(found)


def _left_out(reason: str, stored: StoredColumns, flags: Array) -> tuple[LeftOut, ...]:
    return (LeftOut(reason, stored.rows_in_file(flags)),) if flags.any() else ()


def named_spec(spec: EnvSpec, stored: StoredColumns) -> EnvSpec:
    """Adds the names, categories and first action of a table."""
    labels = stored.labels
    names = labels.names.get("obs", ())
    if spec.obs_shape == (len(names),):
        spec = replace(spec, obs_names=tuple(names))
    if labels.categories:
        spec = replace(spec, categories={name: list(values) for name, values in labels.categories.items()})
        if "actions" in labels.categories:  # an action may be missing from the data
            spec = replace(spec, action_dim=len(labels.categories["actions"]))
    return replace(spec, action_start=labels.action_start) if labels.action_start else spec


def require_same_names(spec: EnvSpec, stored: StoredColumns) -> None:
    """Raises ValueError if the observations of a table are other columns than the agent was trained with."""
    names = stored.labels.names.get("obs") or (stored.spec and stored.spec.obs_names)
    if spec.obs_names and names and tuple(names) != tuple(spec.obs_names):
        raise ValueError(
            f"the observations are {','.join(names)}, but those of the agent are {','.join(spec.obs_names)}; name them "
            "in this order with --columns obs=NAME,NAME, or rename the columns of the data"
        )


def require_same_categories(spec: EnvSpec, stored: EnvSpec | None) -> None:
    """Raises ValueError if a file has the numbers of other categories than the agent was trained with."""
    for name, values in ((stored and stored.categories) or {}).items():
        known = (spec.categories or {}).get(name, values)
        if known != values:
            raise ValueError(
                f"{name!r} has the categories {', '.join(values)} here, but {', '.join(known)} in the training data; "
                "convert both files together, or list the values in order with --categories"
            )
