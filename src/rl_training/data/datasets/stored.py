"""From the stored columns of a file to valid transitions: repairs that are allowed, names, and rows left out."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rl_training.data.datasets import validation
from rl_training.data.datasets.actions import Bounds, guessed_actions
from rl_training.data.datasets.columns import to_array
from rl_training.data.datasets.validation import DatasetError
from rl_training.data.readers.names import ACTIONS
from rl_training.data.readers.rows import LeftOut, StoredColumns
from rl_training.types import Array, Arrays, EnvSpec

NOT_FINITE = "a value is missing, NaN or infinite"
BRIDGES = "next_obs belongs to another episode"


# Columns while rows are repaired: truncated by a dropped row; the episode, and the row, before any drop.
CUT, EPISODE, ROW = "cut", "file_episode", "stored_row"


class Repaired(NamedTuple):
    columns: Arrays
    episodes: Array  # the episode of the file that each row belongs to
    rows: Array  # the stored row of each row


@contextmanager
def naming_rows(stored: StoredColumns, rows: Array | None = None) -> Iterator[None]:
    """Gives a DatasetError about one of these stored rows the number of the row in the file."""
    try:
        yield
    except DatasetError as error:
        raise error.at(lambda row: stored.place(row if rows is None else int(rows[row]))) from None


def repaired(stored: StoredColumns, allow: Collection[str]) -> Repaired:
    """Returns the columns after the repairs that `allow` names; raises DatasetError for other problems."""
    validation.require_rewards(stored.columns)
    rows = {name: to_array(name, column) for name, column in stored.columns.items()}
    if "no_episode_end" not in allow:
        validation.require_episode_ends(rows, stored.names.keys())
    ends = rows["dones"] + rows["truncated"] > 0
    episodes = np.cumsum(ends) - ends if stored.trajectories is None else stored.trajectories
    rows |= {CUT: rows["truncated"], EPISODE: episodes, ROW: np.arange(len(episodes))}
    if "nan" not in allow:
        with naming_rows(stored):
            validation.require_finite(rows, stored.positions, stored.entry_names)
    rows = validation.drop_nan_rows(rows, allow)
    rows = whole_actions({**rows, CUT: rows["truncated"] > rows[CUT]}, stored)
    if "next_obs" in stored.names:  # derived ones cannot cross
        with naming_rows(stored, rows[ROW]):
            rows = validation.split_crossings(rows, allow)
    cut, episode, row = (rows.pop(name) for name in (CUT, EPISODE, ROW))
    if stored.trajectories is not None:
        return Repaired(rows, episode, row)
    ends = (rows["dones"] + rows["truncated"] > 0) & ~(cut & (np.diff(episode, append=-1) == 0))
    return Repaired(rows, np.cumsum(ends) - ends, row)


def as_known(stored: StoredColumns, known: EnvSpec | None, action_range: Bounds | None) -> StoredColumns:
    """Reads integers with gaps, in several columns, or in a Box with a range, as numbers if they are known as such."""
    if action_range is not None and stored.spec is not None:
        stored = replace(stored, spec=_as_box(stored.spec))
    if known is None or known.action_kind != "box":
        return stored
    return as_numbers(replace(stored, labels=stored.labels._replace(integer_actions=False)))


def _as_box(spec: EnvSpec) -> EnvSpec:
    """The spec with Box actions if the environment has a Box of integers, which are choices otherwise."""
    space = spec.action_space or {}
    if spec.action_kind == "box" or space.get("type") != "Box":
        return spec
    low, high = (tuple(map(float, np.ravel(space[bound]))) for bound in ("low", "high"))
    return replace(
        spec, action_kind="box", action_dim=len(low), action_shape=tuple(space["shape"]), action_low=low,
        action_high=high, action_start=0, action_sizes=(), action_starts=(), action_space=None,
    )  # fmt: skip


def as_numbers(stored: StoredColumns) -> StoredColumns:
    """Reads integers in several columns of actions as numbers."""
    pattern = stored.names.get("actions", "")
    if not ("," in pattern or pattern.endswith("*")) or stored.columns["actions"].ndim < 2:
        return stored
    actions = {name: stored.columns[name].astype(np.float32) for name in stored.columns.keys() & {*ACTIONS}}
    labels = stored.labels._replace(integer_actions=False)
    return replace(stored, columns={**stored.columns, **actions}, labels=labels)


def whole_actions(columns: Arrays, stored: StoredColumns) -> Arrays:
    """Integers of which some were missing are floats; once these rows are dropped, they are integers again."""
    if not stored.labels.integer_actions:
        return columns
    names = columns.keys() & {*ACTIONS}
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
    rows = stored.rows_in_file(flags)
    if not stored.files:
        return (LeftOut(reason, rows),) if len(rows) else ()
    stops = [*(start for _, start in stored.files[1:]), stored.rows]
    parts = [
        LeftOut(f"{reason} ({source})", rows[(rows >= start) & (rows < stop)] - start)
        for (source, start), stop in zip(stored.files, stops, strict=True)
    ]
    return tuple(part for part in parts if len(part.rows))


def guessed_space(stored: StoredColumns, actions: Array) -> Iterator[tuple[str, str, str]]:
    """Warnings (kind, text, fix) about an action space that only the data show."""
    if not stored.labels.integer_actions:
        named = stored.labels.categories.keys() & {"actions", *stored.labels.names.get("actions", ())}
        yield from () if named else guessed_actions(actions)
    elif "actions" not in stored.labels.categories and stored.columns["actions"].dtype.kind == "f":
        kind = "Discrete" if actions.ndim == 1 or actions.shape[1] == 1 else "MultiDiscrete"
        text = f"the actions are whole numbers of which some are missing, and they are read as {kind}"
        yield "whole_actions", text, "set --action-range LOW,HIGH if they are Box actions"


def reading_notes(stored: StoredColumns, guessed: Array | None) -> Iterator[str]:
    """How the file was read, with its warnings; `guessed` are actions that a space is guessed from."""
    yield from stored.labels.notes
    for _, text, fix in (*stored.labels.warnings, *(() if guessed is None else guessed_space(stored, guessed))):
        yield f"{text}; {fix}" if fix else text


def named_spec(spec: EnvSpec, stored: StoredColumns) -> EnvSpec:
    """Adds the names, categories and first action of a table."""
    labels, columns = stored.labels, stored.labels.names.get("actions", ())
    names = labels.names.get("obs", ())
    if spec.obs_shape == (len(names),):
        spec = replace(spec, obs_names=tuple(names))
    if labels.categories:
        spec = replace(spec, categories={name: list(values) for name, values in labels.categories.items()})
        if "actions" in labels.categories:  # an action may be missing from the data
            spec = replace(spec, action_dim=len(labels.categories["actions"]))
    if text := [column for column in columns if column in labels.categories and spec.action_kind == "box"]:
        raise ValueError(f"action_range is for numbers, but {text[0]!r} is a category; leave one of both out")
    if spec.action_kind == "multi_discrete" and len(columns) == spec.action_dim:
        counts = [len(labels.categories.get(column, ())) for column in columns]  # 0 for columns of integers
        sizes = tuple(count or size for count, size in zip(counts, spec.action_sizes, strict=True))
        spec = replace(spec, action_columns=columns, action_sizes=sizes)
    if isinstance(labels.action_start, tuple):
        return replace(spec, action_starts=labels.action_start)
    return replace(spec, action_start=labels.action_start) if labels.action_start else spec


def require_same_table(spec: EnvSpec | None, stored: StoredColumns) -> None:
    """Raises ValueError if a table has other columns of observations or other categories than a known spec."""
    if spec is not None:
        _require_same_categories(spec, stored.spec)
        _require_same_names(spec, stored)


def _require_same_names(spec: EnvSpec, stored: StoredColumns) -> None:
    """Raises ValueError if the observations or choices of a table are other columns than those of the agent."""
    labels, written = stored.labels.names, stored.spec
    obs = labels.get("obs") or (written and written.obs_names)
    actions = labels.get("actions", ()) if written is None else written.action_columns
    actions = actions if len(actions or ()) == spec.action_dim else None  # a column of lists has no names
    found = {"observations": ("obs", spec.obs_names, obs), "actions": ("actions", spec.action_columns, actions)}
    for what, (name, known, columns) in found.items():
        if known and columns and tuple(columns) != tuple(known):
            raise ValueError(
                f"the {what} are {','.join(columns)}, but those of the agent are {','.join(known)}; name them in this "
                f"order with --columns {name}=NAME,NAME, or rename the columns of the data"
            )


def _require_same_categories(spec: EnvSpec, stored: EnvSpec | None) -> None:
    """Raises ValueError if a file has the numbers of other categories than the agent was trained with."""
    for name, values in ((stored and stored.categories) or {}).items():
        known = (spec.categories or {}).get(name, values)
        if known != values:
            raise ValueError(
                f"{name!r} has the categories {', '.join(values)} here, but {', '.join(known)} in the training data; "
                "convert both files together, or list the values in order with --categories"
            )
