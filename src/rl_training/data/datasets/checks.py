"""Checks of a dataset: reports all errors and warnings at once, each with a fix."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rl_training.data.datasets import report, validation
from rl_training.data.datasets.actions import Bounds, scale_actions, with_action_range
from rl_training.data.datasets.columns import to_array, to_columns
from rl_training.data.datasets.report import ColumnSummary, DatasetReport, Distribution, Finding
from rl_training.data.datasets.returns import differing_returns, episode_ends, episode_lengths, episode_returns
from rl_training.data.datasets.stored import ROW, as_known, guessed_space, rows_left_out, whole_actions
from rl_training.data.datasets.table_checks import entry_name, outliers, rounded_entries, table_findings
from rl_training.data.datasets.validation import REPAIRABLE, DatasetError
from rl_training.data.readers import Source, read_columns
from rl_training.data.readers.names import ACTIONS
from rl_training.data.readers.options import AUTO, Categories, table_options
from rl_training.data.readers.rows import StoredColumns
from rl_training.types import Array, Arrays, EnvSpec

if TYPE_CHECKING:
    from rl_training.data.datasets.transition_dataset import TransitionDataset

REPAIRS = {  # applied to problems that are allowed
    "nan": "these rows are dropped, and their episodes are truncated before them",
    "out_of_range": "they are clipped",
    "no_episode_end": "episodes end only at jumps in next_obs and at the ends of files",
    "crossing": "the episodes are split there",
}
REWARD_WARNINGS = ("constant_rewards", "shuffled")


def check_dataset(dataset: TransitionDataset, *, rewards: bool = True) -> list[str]:
    """Returns warnings about a dataset that can be trained on; without `rewards`, none that concern rewards only."""
    columns = {name: column.cpu().numpy() for name, column in dataset.columns.items()}
    # Loading rejects files without episode ends unless the user allowed them.
    errors = [_downgraded(error, ("no_episode_end",)) for error in _missing_ends(columns, columns.keys())]
    findings = (*errors, *_crossings(columns), *_warnings(columns))
    return [finding.sentence for finding in findings if rewards or finding.kind not in REWARD_WARNINGS]


def inspect_source(
    source: Source, *, columns: Mapping[str, str] | None = None, categories: Categories | None = None,
    csv_dialect: str = AUTO, max_gap: float | None = None, **options: Any,
) -> DatasetReport:  # fmt: skip
    """Inspects one or several files; a file that cannot be read is reported as an error."""
    table = table_options(categories, csv_dialect, max_gap).for_spec(options.get("spec"), options.get("action_range"))
    try:
        stored = read_columns(source, columns=columns, options=table)
    except (TypeError, ValueError) as error:
        return DatasetReport(findings=(Finding("unreadable", "error", str(error), ""),))
    return inspect_columns(stored, **options)


def inspect_columns(
    stored: StoredColumns, *, spec: EnvSpec | None = None, action_range: Bounds | None = None,
    allow: Collection[str] = (),
) -> DatasetReport:  # fmt: skip
    """Inspects the columns of a file; problems named in `allow` are repaired and become warnings."""
    validation.check_allow(allow)
    if missing := list(_run_check("no_rewards", validation.require_rewards, stored.columns)):
        return _without_rewards(stored, missing, spec=spec, action_range=action_range, allow=allow)
    stored = as_known(stored, spec or stored.spec, action_range)
    spec = spec or stored.spec
    summaries = {key: report.summarize_column(each, stored.name_in_file(key)) for key, each in stored.columns.items()}
    if stored.labels.integer_actions:  # read as floats, because some are missing
        numbers = summaries.keys() & {*ACTIONS}
        summaries |= {key: summaries[key]._replace(dtype="int64") for key in numbers}
    wrong = [name for name, column in summaries.items() if column.not_finite]
    usable, errors = _usable(stored, wrong, spec, action_range)
    duplicates = report.count_duplicates(*(stored.columns[name] for name in ("obs", "actions", "rewards")))
    is_known = spec is not None or action_range is not None
    guessed = () if is_known else guessed_space(stored, stored.columns["actions"])
    warnings = [
        *_warnings(usable), *(Finding(kind, "warning", *text) for kind, *text in guessed),
        *_constant_columns(summaries, stored.labels.names), *table_findings(stored, summaries["obs"]),
        *(each for name in ("obs", "actions") for each in outliers(stored, name, summaries[name])),
        *rounded_entries(summaries["obs"], stored.labels.names.get("obs", ())),
        *_duplicates(duplicates, len(stored.columns["obs"])), *_undiscounted_returns(usable),
    ]  # fmt: skip
    dones, rewards = usable["dones"] != 0, usable["rewards"]
    ends = episode_ends(dones, usable["truncated"])
    return DatasetReport(
        rows=stored.rows, transitions=len(ends), episodes=int(ends.sum()), terminals=int(dones.sum()),
        timeouts=int(ends.sum() - dones.sum()), columns=summaries, rewards=Distribution.of(rewards),
        returns=Distribution.of(episode_returns(rewards, ends)), lengths=Distribution.of(episode_lengths(ends)),
        duplicates=duplicates, findings=(*(_downgraded(error, allow) for error in errors), *warnings),
        left_out=rows_left_out(stored, REPAIRABLE) if 0 < len(ends) < len(stored.columns["obs"]) else stored.left_out,
        notes=stored.labels.notes, names=dict(stored.labels.names), categories=dict(stored.labels.categories),
        action_start=stored.labels.action_start,
    )  # fmt: skip


def _without_rewards(stored: StoredColumns, missing: list[Finding], **options: Any) -> DatasetReport:
    """Inspects the other columns of a file without rewards."""
    zeros = np.zeros(len(stored.columns["obs"]), np.float32)
    found = inspect_columns(replace(stored, columns={**stored.columns, "rewards": zeros}), **options)
    others = (each for each in found.findings if each.kind not in REWARD_WARNINGS)
    columns = {name: column for name, column in found.columns.items() if name != "rewards"}
    return replace(found, findings=(*missing, *others), columns=columns, rewards=None, returns=None)


def _usable(
    stored: StoredColumns, wrong: Collection[str], spec: EnvSpec | None, action_range: Bounds | None
) -> tuple[Arrays, list[Finding]]:
    """Columns with every repair applied, and the errors found; `wrong` columns hold NaN or infinite values."""
    rows = {name: to_array(name, column) for name, column in stored.columns.items()}
    require_finite = partial(validation.require_finite, positions=stored.positions, names=stored.entry_names)
    errors = [
        error for name in wrong for error in _run_check("nan", require_finite, {name: rows[name]}, place=stored.place)
    ]
    errors += _missing_ends(rows, stored.names.keys())
    rows[ROW] = np.arange(len(rows["obs"]))
    try:
        rows = whole_actions(validation.drop_nan_rows(rows, REPAIRABLE) if wrong else rows, stored)
        positions = rows.pop(ROW)

        def place(row: int) -> str:
            return stored.place(int(positions[row]))

        crossings = list(_crossings(rows, place)) if "next_obs" in stored.names else []  # derived next_obs cannot cross
        errors += crossings
        columns, spec = to_columns(rows, spec, action_range=action_range, allow=REPAIRABLE)
        bounds = with_action_range(spec, action_range)
        for name in (each for each in ACTIONS if each in rows):
            errors += _run_check("out_of_range", scale_actions, rows[name], bounds, name=name, place=place)
        return (validation.split_crossings(columns, REPAIRABLE) if crossings else columns), errors
    except (TypeError, ValueError) as error:  # cannot be repaired
        empty = {name: column[:0] for name, column in rows.items()}
        located = error.at(place) if isinstance(error, DatasetError) else error
        text, fix = (located.text, located.fix) if isinstance(located, DatasetError) else (str(error), "")
        return empty, [*errors, Finding("unusable", "error", text, fix)]


def _run_check(
    kind: str, check: Callable[..., object], *inputs: Any, place: Callable[[int], object] = str, **options: Any
) -> Iterator[Finding]:
    """Runs a check that training makes; yields its DatasetError as a finding, with the `place` of its row."""
    try:
        check(*inputs, **options)
    except DatasetError as error:
        yield Finding(kind, "error", error.at(place).text, error.fix)


def _downgraded(error: Finding, allow: Collection[str]) -> Finding:
    return error._replace(severity="warning", fix=REPAIRS[error.kind]) if error.kind in allow else error


def _missing_ends(columns: Arrays, stored: Set[str]) -> Iterator[Finding]:
    return _run_check("no_episode_end", validation.require_episode_ends, columns, stored)


def _crossings(columns: Arrays, place: Callable[[int], object] = str) -> Iterator[Finding]:
    jumps, bridges = validation.find_crossings(*(columns[name] for name in ("obs", "next_obs", "dones", "truncated")))
    return _run_check("crossing", validation.require_no_crossing, jumps | bridges, place=place)


def _warnings(columns: Arrays) -> Iterator[Finding]:
    dones, rewards = columns["dones"] != 0, columns["rewards"]
    if not len(dones):
        return
    ends = episode_ends(dones, columns["truncated"])
    lengths = episode_lengths(ends)
    yield from _constant_rewards(rewards, dones)
    if len(ends) >= 10 and len(lengths) > len(ends) / 2:
        if int(dones.sum()) > len(ends) / 2:
            return  # most decisions are episodes of their own, as in contextual bandits
        yield Finding(
            "shuffled", "warning",
            f"{len(ends)} rows form {len(lengths)} episodes: rows look shuffled, so episode returns and returns-to-go "
            "are meaningless",
            "store rows in the order they were recorded",
        )  # fmt: skip
        return  # the checks below need ordered rows
    yield from _doubled_terminals(columns)
    if not columns["truncated"].any():
        yield from _time_limits_as_terminals(lengths)


def _constant_rewards(rewards: Array, dones: Array) -> Iterator[Finding]:
    if (rewards != rewards[0]).any():
        return
    effect = " and no episode terminates: all actions are equally good"
    if dones.any():
        effect = ": actions differ only by when episodes terminate"
    fix = "check that this is the right reward column"
    yield Finding("constant_rewards", "warning", f"every reward is {rewards[0]:g}{effect}", fix)


def _doubled_terminals(columns: Arrays) -> Iterator[Finding]:
    obs, next_obs, dones = columns["obs"], columns["next_obs"], columns["dones"] != 0
    pairs, lone = np.flatnonzero(dones[:-1] & dones[1:]), np.flatnonzero(dones[:-1] & ~dones[1:])
    if len(lone) and validation.same_rows(next_obs[lone], obs[lone + 1]).any():
        return  # trajectories go on after their terminal rows, as those of OGBench that pass a goal
    continued = pairs[validation.same_rows(next_obs[pairs], obs[pairs + 1])]
    # Derived next_obs gives no evidence. Then doubled terminals in a third of the episodes count as evidence.
    frequent = len(pairs) * 2 >= int(dones.sum()) - len(pairs)
    doubled = pairs if frequent and not len(continued) else continued
    if len(doubled):
        ends = "1 episode ends" if len(doubled) == 1 else f"{len(doubled)} episodes end"
        text = f"{ends} with two terminal rows; the first such row is {int(doubled[0])}"
        yield Finding("doubled_terminals", "warning", text, "mark only the last row of an episode")


def _time_limits_as_terminals(lengths: Array) -> Iterator[Finding]:
    longest, equal = int(lengths.max()), int((lengths == lengths.max()).sum())
    if longest >= 10 and equal >= 3 and equal * 5 >= len(lengths):
        yield Finding(
            "time_limits_as_terminals", "warning",
            f"{equal} of {len(lengths)} episodes terminate after exactly {longest} rows and none is longer: this looks "
            "like a time limit, but terminal rows do not bootstrap",
            "mark time limits in truncated (timeouts) instead of dones",
        )  # fmt: skip


def _constant_columns(summaries: Mapping[str, ColumnSummary], names: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    for name in ("obs", "actions"):
        rounded = summaries[name].rounded if name == "obs" else []
        if constant := [number for number in summaries[name].constant if number not in rounded]:
            labels = [entry_name(number, names.get(name, ())) for number in constant[:10]]
            shown = ", ".join(labels) + (", ..." if len(constant) > 10 else "")
            yield Finding(
                "constant_column", "warning",
                f"{len(constant)} of {len(summaries[name].low)} dimensions of {name} never change (dimension {shown})",
                "remove them, or check whether their recording failed",
            )  # fmt: skip


def _duplicates(duplicates: int, rows: int) -> Iterator[Finding]:
    if duplicates * 100 > rows:
        fix = "remove rows that were recorded or joined twice; with few distinct states, duplicates are normal"
        yield Finding("duplicates", "warning", f"{duplicates} of {rows} rows are duplicates", fix)


def _undiscounted_returns(columns: Arrays) -> Iterator[Finding]:
    if "returns_to_go" not in columns or not len(columns["obs"]):
        return
    rewards, dones = columns["rewards"].astype(np.float64), columns["dones"] != 0
    parts = rewards, episode_ends(dones, columns["truncated"]), dones
    if not differing_returns(columns["returns_to_go"], *parts, 1.0)[0].any():
        text = "the column returns_to_go is undiscounted: cal_ql refuses it unless gamma is 1"
        yield Finding("undiscounted_returns", "warning", text, "leave it out with --columns returns_to_go=")
