"""OGBench's arrays (Park et al., 2024, arXiv:2410.20092): `terminals` ends a trajectory, `masks` 0 ends its rewards.

The rules are those of `load_dataset` in github.com/seohongpark/ogbench, ogbench/utils.py. There are three layouts:

- raw, as downloaded: observations, actions and terminals. The last row of a trajectory only holds its last state.
- regular: also next_observations and, for a single task, rewards and masks.
- compact: as raw, with `valids`, which is 0 in rows without a next observation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rl_training.data.datasets.durations import TIME
from rl_training.data.datasets.validation import require_equal_lengths
from rl_training.data.readers.episodes import Warnings, join_episodes, require_ids, single_ids
from rl_training.data.readers.names import NEEDED, SPELLINGS, choose_names, with_one_use
from rl_training.data.readers.rows import (
    NO_LABELS,
    NO_NEXT_OBS,
    LeftOut,
    StoredColumns,
    complete_transitions,
    drop_incomplete,
    incomplete_notes,
    keep_rows,
    read_flags,
    with_durations,
)
from rl_training.data.readers.timing import TimeColumn, apply_times
from rl_training.types import Array, Arrays, EnvSpec

ENDS, MASKS, VALIDS = "terminals", "masks", "valids"
OTHER_ENDS = {*SPELLINGS["truncated"], *SPELLINGS["dones"], *SPELLINGS["episodes"], "episode_terminals"} - {ENDS}


def choose_array_names(stored: Sequence[str], given: Mapping[str, str], source: object) -> dict[str, str]:
    """`choose_names` and `with_one_use` for files of arrays, which may be those of OGBench."""
    is_ogbench = _is_ogbench(set(stored), given)
    own = {"truncated": ENDS, "dones": MASKS, VALIDS: VALIDS} if is_ogbench else {}
    others = [name for name in stored if name not in own.values()]
    names = choose_names(others, given, source, needed=("obs", "actions") if is_ogbench else NEEDED)
    names = with_one_use(names, given, others, source)
    return {**names, **{name: column for name, column in own.items() if column in stored}}


def complete_arrays(
    columns: Arrays, names: Mapping[str, str], source: object, *, spec: EnvSpec | None = None
) -> StoredColumns:
    """`complete_transitions` for files of arrays, which may be those of OGBench."""
    is_ogbench = names.get("truncated") == ENDS and names.get("dones") in (None, MASKS)
    columns = dict(columns)
    incomplete = drop_incomplete(columns, [name for name in columns if name not in names])
    labels = NO_LABELS._replace(notes=incomplete_notes(incomplete), incomplete=incomplete)
    require_equal_lengths(columns)
    if not is_ogbench:
        order, warnings = _joined(columns, names, source)
        labels = labels._replace(warnings=warnings)
        return complete_transitions(columns, names, source, spec=spec, labels=labels, order=order)
    rows = len(columns["obs"])
    ends, masks, valids = (
        read_flags(name, columns.pop(column, np.full(rows, column != "truncated")), source)
        for name, column in ((ENDS, "truncated"), (MASKS, "dones"), (VALIDS, VALIDS))
    )
    complete = {**with_durations(columns, names, ends, source), "dones": ~masks, "truncated": ends}
    trajectories, kept = np.cumsum(ends) - ends, None
    left_out: tuple[LeftOut, ...] = ()
    if "next_obs" not in columns:
        complete, kept = _derive_next_obs(complete, valids if VALIDS in names else ~ends, source)
        trajectories = trajectories[kept]
        left_out = (LeftOut(NO_NEXT_OBS, np.setdiff1d(np.arange(rows), kept, assume_unique=True)),)
    complete["truncated"] &= ~complete["dones"]
    stored_names = {name: column for name, column in names.items() if name != VALIDS}
    go_on = complete["dones"][:-1] & (trajectories[1:] == trajectories[:-1])
    return StoredColumns(
        complete, stored_names, rows, spec, labels, left_out, positions=kept,
        trajectories=trajectories if go_on.any() else None,
    )  # fmt: skip


def _joined(columns: Arrays, names: Mapping[str, str], source: object) -> tuple[Array | None, Warnings]:
    """Puts the rows of each episode together if the file has their ids, in the order of a time that the user names."""
    if "episodes" not in columns:
        return None, ()
    ids = columns["episodes"]
    require_ids(ids, f"{source}: column {names['episodes']!r}")
    columns["episodes"] = single_ids(ids)
    if TIME in names and columns[TIME].ndim == 1:
        order, warnings = apply_times(columns, {}, TimeColumn(TIME, names[TIME], sorts=True), None, source)
        return order, tuple(each for each in warnings if each[0] == "sorted")  # gaps end episodes of tables only
    return join_episodes(columns, names["episodes"], source)


def _is_ogbench(stored: set[str], given: Mapping[str, str]) -> bool:
    if ENDS not in stored or stored & OTHER_ENDS or given.keys() & {"dones", "truncated", "episodes"}:
        return False
    is_raw = stored.isdisjoint({*SPELLINGS["rewards"], *SPELLINGS["next_obs"]})
    return is_raw or not stored.isdisjoint({MASKS, VALIDS})


def _derive_next_obs(columns: Arrays, has_next: Array, source: object) -> tuple[Arrays, Array]:
    """Takes next_obs from the next row, drops the rows of last states, and also returns the rows kept."""
    has_next[-1] = False
    if not len(kept := np.flatnonzero(has_next)):
        raise ValueError(f"{source}: none of the {len(has_next)} rows has a next observation in its trajectory")
    next_obs, ends = columns["obs"][kept + 1], ~has_next[kept + 1]
    kept_columns = {name: keep_rows(column, kept) for name, column in columns.items()}
    return {**kept_columns, "next_obs": next_obs, "truncated": ends}, kept
