"""What is wrong with a dataset, or may be: all of it at once, a sentence and a fix each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Set
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rl_training.data.datasets.actions import TOLERANCE, Bounds, scale_actions, with_action_range
from rl_training.data.datasets.columns import to_array, to_columns
from rl_training.data.datasets.episodes import episode_ends, episode_lengths, episode_returns
from rl_training.data.datasets.repair import drop_nan_rows, split_crossings
from rl_training.data.datasets.report import (
    ColumnSummary,
    DatasetReport,
    Distribution,
    Finding,
    count_duplicates,
    summarize_column,
)
from rl_training.data.datasets.validation import (
    REPAIRABLE,
    DatasetError,
    check_allow,
    find_crossings,
    require_episode_ends,
    require_finite,
    require_no_crossing,
    same_rows,
)
from rl_training.data.readers import read_columns
from rl_training.data.readers.rows import StoredColumns
from rl_training.types import Array, Arrays, EnvSpec

if TYPE_CHECKING:
    from rl_training.data.datasets.transition_dataset import TransitionDataset

__all__ = ["DatasetReport", "Finding", "check_dataset", "inspect_columns", "inspect_source"]

MENDED = {  # what is done about a fault that is allowed
    "nan": "they are left out, and the episode ends before them",
    "out_of_range": "they are clipped",
    "no_episode_end": "only jumps in next_obs and the ends of files end one",
    "crossing": "the episodes are cut there",
}
ABOUT_REWARDS = ("constant_rewards", "shuffled")


def check_dataset(dataset: TransitionDataset, *, rewards: bool = True) -> list[str]:
    """Warnings about data that can be trained on but may not mean what it seems to; empty when there is no doubt.

    Where nobody learns from its rewards, what is doubtful about them alone is not told.
    """
    columns = {name: column.cpu().numpy() for name, column in dataset.columns.items()}
    # Files without ends are refused long before, unless that was allowed.
    faults = [_judged(fault, ("no_episode_end",)) for fault in _missing_ends(columns, columns.keys())]
    found = (*faults, *_crossings(columns), *_doubts(columns))
    return [finding.sentence for finding in found if rewards or finding.kind not in ABOUT_REWARDS]


def inspect_source(source: str | Path, *, columns: Mapping[str, str] | None = None, **options: Any) -> DatasetReport:
    """Everything there is to say about a file, or files, of transitions; also where they cannot be read."""
    try:
        stored = read_columns(source, columns=columns)
    except (TypeError, ValueError) as error:
        return DatasetReport(findings=(Finding("unreadable", "error", str(error), ""),))
    return inspect_columns(stored, **options)


def inspect_columns(
    stored: StoredColumns, *, spec: EnvSpec | None = None, action_range: Bounds | None = None,
    allow: Collection[str] = (),
) -> DatasetReport:  # fmt: skip
    """Everything there is to say about a file's columns; a fault that `allow` names is mended, and no error."""
    check_allow(allow)
    spec = spec or stored.spec
    summaries = {name: summarize_column(column, stored.name_in_file(name)) for name, column in stored.columns.items()}
    wrong = [name for name, column in summaries.items() if column.not_finite]
    usable, faults = _usable(stored, wrong, spec, action_range)
    duplicates = count_duplicates(*(stored.columns[name] for name in ("obs", "actions", "rewards")))
    doubts = [
        *_doubts(usable),
        *_guessed_bounds(summaries["actions"], spec, action_range),
        *_constant_columns(summaries),
        *_duplicates(duplicates, len(stored.columns["obs"])),
    ]
    dones, rewards = usable["dones"] != 0, usable["rewards"]
    ends = episode_ends(dones, usable["truncated"])
    return DatasetReport(
        rows=stored.rows, transitions=len(ends), episodes=int(ends.sum()), terminals=int(dones.sum()),
        timeouts=int(ends.sum() - dones.sum()), columns=summaries, rewards=Distribution.of(rewards),
        returns=Distribution.of(episode_returns(rewards, ends)), lengths=Distribution.of(episode_lengths(ends)),
        duplicates=duplicates, findings=(*(_judged(fault, allow) for fault in faults), *doubts),
    )  # fmt: skip


def _usable(
    stored: StoredColumns, wrong: Collection[str], spec: EnvSpec | None, action_range: Bounds | None
) -> tuple[Arrays, list[Finding]]:
    """The rows that would remain if every fault were mended, and the faults; `wrong` columns are not all finite."""
    rows = {name: to_array(name, column) for name, column in stored.columns.items()}
    faults = [fault for name in wrong for fault in _refusals("nan", partial(require_finite, {name: rows[name]}))]
    faults += _missing_ends(rows, stored.names.keys())
    try:
        rows = drop_nan_rows(rows, REPAIRABLE) if wrong else rows
        crossings = list(_crossings(rows)) if "next_obs" in stored.names else []  # made from the rows, it fits them
        faults += crossings
        columns, spec = to_columns(rows, spec, action_range=action_range, allow=REPAIRABLE)
        bounds = with_action_range(spec, action_range)
        for name in (each for each in ("actions", "next_actions") if each in rows):
            faults += _refusals("out_of_range", partial(scale_actions, rows[name], bounds, name=name))
        return split_crossings(columns, REPAIRABLE) if crossings else columns, faults
    except (TypeError, ValueError) as error:  # what cannot be mended
        nothing = {name: column[:0] for name, column in rows.items()}
        text, fix = (error.text, error.fix) if isinstance(error, DatasetError) else (str(error), "")
        return nothing, [*faults, Finding("unusable", "error", text, fix)]


def _refusals(kind: str, require: Callable[[], object]) -> Iterator[Finding]:
    """What a check that training makes has to say, as a finding."""
    try:
        require()
    except DatasetError as fault:
        yield Finding(kind, "error", fault.text, fault.fix)


def _judged(fault: Finding, allow: Collection[str]) -> Finding:
    return fault._replace(severity="warning", fix=MENDED[fault.kind]) if fault.kind in allow else fault


def _missing_ends(columns: Arrays, told: Set[str]) -> Iterator[Finding]:
    return _refusals("no_episode_end", partial(require_episode_ends, columns, told))


def _crossings(columns: Arrays) -> Iterator[Finding]:
    jumps, bridges = find_crossings(*(columns[name] for name in ("obs", "next_obs", "dones", "truncated")))
    return _refusals("crossing", partial(require_no_crossing, jumps | bridges))


def _doubts(columns: Arrays) -> Iterator[Finding]:
    dones, rewards = columns["dones"] != 0, columns["rewards"]
    if not len(dones):
        return
    ends = episode_ends(dones, columns["truncated"])
    lengths = episode_lengths(ends)
    yield from _constant_rewards(rewards, dones)
    if len(ends) >= 10 and len(lengths) > len(ends) / 2:
        yield Finding(
            "shuffled", "warning",
            f"{len(ends)} rows make {len(lengths)} episodes: they look shuffled, so episode returns and "
            "returns-to-go mean little",
            "keep rows in the order they were lived, if you have them so",
        )  # fmt: skip
        return  # what follows would only say the same in other words
    yield from _doubled_terminals(columns)
    if not columns["truncated"].any():
        yield from _time_limits_as_terminals(lengths)


def _constant_rewards(rewards: Array, dones: Array) -> Iterator[Finding]:
    if (rewards != rewards[0]).any():
        return
    told = "only where episodes terminate can tell one action from another"
    yield Finding(
        "constant_rewards", "warning",
        f"every reward is {rewards[0]:g}: {told}" if dones.any() else
        f"every reward is {rewards[0]:g} and no episode terminates: nothing tells one action from another",
        "check that the column holds the reward you mean",
    )  # fmt: skip


def _doubled_terminals(columns: Arrays) -> Iterator[Finding]:
    dones = columns["dones"] != 0
    pairs = np.flatnonzero(dones[:-1] & dones[1:])
    going_on = pairs[same_rows(columns["next_obs"][pairs], columns["obs"][pairs + 1])]  # lived on after their end
    # Where next_obs was made from the rows it cannot tell; then it is the habit that does.
    habit = len(pairs) * 2 >= int(dones.sum()) - len(pairs)
    doubled = pairs if habit and not len(going_on) else going_on
    if len(doubled):
        yield Finding(
            "doubled_terminals", "warning",
            f"{len(doubled)} episodes have two terminal rows at their end; the first such row is {int(doubled[0])}",
            "mark only the last row of an episode",
        )  # fmt: skip


def _time_limits_as_terminals(lengths: Array) -> Iterator[Finding]:
    longest = int(lengths.max())
    alike = int((lengths == longest).sum())
    if longest < 10 or alike < 3 or alike * 5 < len(lengths):
        return
    yield Finding(
        "time_limits_as_terminals", "warning",
        f"{alike} of {len(lengths)} episodes terminate after exactly {longest} rows and none is longer: that looks "
        "like a time limit, and a terminal row counts as having no future",
        "mark the rows that only the clock ended in truncated (timeouts) instead of dones",
    )  # fmt: skip


def _guessed_bounds(actions: ColumnSummary, spec: EnvSpec | None, action_range: Bounds | None) -> Iterator[Finding]:
    if spec is not None or action_range is not None or not actions.dtype.startswith("float"):
        return
    largest = max(map(abs, (*actions.low, *actions.high)))
    if largest > 1 + TOLERANCE:
        yield Finding(
            "guessed_bounds", "warning",
            f"the bounds of the actions are not known; the largest seen ({largest:g}) will be taken for them",
            "give them with --action-range LOW,HIGH, or name the environment",
        )  # fmt: skip


def _constant_columns(summaries: Mapping[str, ColumnSummary]) -> Iterator[Finding]:
    for name in ("obs", "actions"):
        constant = summaries[name].constant
        if constant:
            shown = ", ".join(map(str, constant[:10])) + (", ..." if len(constant) > 10 else "")
            yield Finding(
                "constant_column", "warning",
                f"{len(constant)} of the {len(summaries[name].low)} numbers in {name} never change (number {shown})",
                "leave them out if they carry nothing, or look whether their recording failed",
            )  # fmt: skip


def _duplicates(duplicates: int, rows: int) -> Iterator[Finding]:
    if duplicates * 100 > rows:
        yield Finding(
            "duplicates", "warning",
            f"{duplicates} of {rows} rows are there more than once",
            "leave out what was recorded or joined twice; a world of few states repeats itself by nature",
        )  # fmt: skip
