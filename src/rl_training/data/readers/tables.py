"""Tables with one column per number, category, episode id or timestamp, completed to transitions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rl_training.data.datasets.durations import TIME
from rl_training.data.readers import cells
from rl_training.data.readers.names import choose_names, matching_columns, other_names
from rl_training.data.readers.options import TableOptions
from rl_training.data.readers.rows import Labels, StoredColumns, complete_transitions, fill_columns, join_columns
from rl_training.data.readers.timing import TIME_NAMES, TimeColumn, apply_times
from rl_training.types import Array, Arrays, EnvSpec

ACTIONS = ("actions", "next_actions")
OBS = ("obs", "next_obs")
STANDARD = (*OBS, *ACTIONS, "rewards", "dones", "truncated", "episodes", "returns_to_go")


@dataclass(frozen=True)
class Table:
    """A table in a file or in memory. Cells are numbers, datetime64, or objects for text."""

    source: object
    names: list[str]
    kinds: Mapping[str, str]  # number, text, time, empty or other, by column
    rows: int  # at most
    batches: Callable[[Sequence[str]], Iterator[Arrays]]  # the named columns, in order
    spec: EnvSpec | None = None
    notes: tuple[str, ...] = ()


@dataclass
class _Plan:
    """The columns of a table to read, and how."""

    table: Table
    chosen: dict[str, list[str]]  # column name, and the columns of the file that it is built from
    categories: dict[str, str] = field(default_factory=dict)  # column of the file, and the key of its categories
    values: dict[str, tuple[str, ...]] = field(default_factory=dict)  # categories by key
    time: str = ""  # column of the file with the time
    ids: dict[str, dict[object, int]] = field(default_factory=dict)  # columns of ids, with the number of each

    def where(self, column: str) -> str:
        return f"{self.table.source}: column {column!r}"


def read_table(table: Table, given: Mapping[str, str] | None, options: TableOptions) -> StoredColumns:
    names = choose_names(table.names, given, table.source)
    time = _time_column(table, given, names)
    chosen = {name: matching_columns(pattern, table.names) for name, pattern in names.items()}
    used = {column for group in chosen.values() for column in group}
    extras = [name for name in other_names(table.names, names, given) if table.kinds[name] == "number"]
    chosen |= {name: [name] for name in extras} | ({time: [time]} if time and time not in used else {})
    plan = _Plan(table, chosen, time=time, ids=_ids(table, chosen, options))
    _plan_categories(plan, given or {}, options)
    stamps = tuple(name for name, group in chosen.items() if any(table.kinds[column] == "time" for column in group))
    columns = fill_columns(_joined(plan), table.rows)
    dropped = _drop_incomplete(columns, [name for name in extras if name != time])
    sorts = table.spec is None and (TIME in (given or {}) or table.kinds.get(time) == "time")
    found = next((TimeColumn(name, time, sorts) for name, group in chosen.items() if group == [time]), None)
    order, warnings = apply_times(columns, names, found, options.max_gap, table.source)
    start = _count_from_0(columns, plan, options)
    notes = (*table.notes, *dropped, *_reading(plan, start))
    key = found.key if found else ""
    labels = Labels(
        _labels(plan), plan.values, start, _integers_with_gaps(columns["actions"]), key, stamps, notes, warnings
    )
    timed = key if options.keep_durations else ""
    return complete_transitions(
        columns, names, table.source, spec=table.spec, labels=labels, order=order, time=timed
    )  # fmt: skip


def _ids(table: Table, chosen: Mapping[str, list[str]], options: TableOptions) -> dict[str, dict[object, int]]:
    """The column of episodes, and columns of text that are ids, such as a patient's."""
    # Text in observations and actions is read as categories.
    learned = {column for name in (*OBS, *ACTIONS) for column in chosen.get(name, ())}
    asked = {
        column: numbers
        for column, numbers in options.ids.items()
        if table.kinds.get(column) == "text" and column not in learned
    }
    return {column: {} for column in chosen.get("episodes", ())} | asked


def _time_column(table: Table, given: Mapping[str, str] | None, names: Mapping[str, str]) -> str:
    """The column that orders the rows: the one named, or one with timestamps or a name such as `timestamp`."""
    if given and TIME in given:
        return given[TIME]
    standard = (pattern for name, pattern in names.items() if name in STANDARD)
    used = {column for pattern in standard for column in matching_columns(pattern, table.names)}
    free = [name for name in table.names if name not in used and (given or {}).get(name) != ""]
    times = [name for name in free if table.kinds[name] == "time"]
    numbers = [name for name in free if name.lower() in TIME_NAMES and table.kinds[name] == "number"]
    return next(iter([*(name for name in times if name.lower() in TIME_NAMES), *times, *numbers]), "")


def _plan_categories(plan: _Plan, given: Mapping[str, str], options: TableOptions) -> None:
    """Decides which columns are categories, and finds their values where they are not given."""
    table, chosen = plan.table, plan.chosen
    asked = dict(options.categories) if table.spec is None else {}  # files written here hold numbers
    missing = [name for name in asked if name not in table.names and name not in STANDARD]
    if missing:
        raise ValueError(f"{table.source} has no column {missing[0]!r} to read as a category; it has {table.names}")
    for name, group in chosen.items():
        partners = chosen["obs"] if name == "next_obs" and len(group) == len(chosen["obs"]) else group
        for column, partner in zip(group, partners, strict=True):
            key = "actions" if name in ACTIONS else partner
            is_text = table.kinds[column] == "text" and name not in (*OBS, "rewards", "dones", "truncated")
            is_text &= column not in plan.ids and column != plan.time
            if column in asked or key in asked or (name in asked and len(group) == 1) or is_text:
                plan.categories[column] = key
                asked.setdefault(key, asked.get(column) or asked.get(name) or ())
    if len(chosen["actions"]) > 1 and (text := [each for each in chosen["actions"] if each in plan.categories]):
        raise ValueError(
            f"{plan.where(text[0])} holds text, and the actions have {len(chosen['actions'])} columns; a category must "
            "be the only action: join the columns into one"
        )
    for key in dict.fromkeys(plan.categories.values()):
        plan.values[key] = tuple(map(str, asked[key])) or _values(plan, key)


def _values(plan: _Plan, key: str) -> tuple[str, ...]:
    columns = [column for column, own in plan.categories.items() if own == key]
    words: set[str | None] = set()
    for batch in plan.table.batches(columns):
        for column in batch.values():
            words.update(cells.to_words(column))
    if len(found := words - {None}) > cells.MOST_CATEGORIES:
        raise ValueError(
            f"{plan.where(columns[0])} has {len(found):,} different values, too many for a category (at most "
            f"{cells.MOST_CATEGORIES:,}); leave it out with --columns, such as {columns[0]}="
        )
    return tuple(cells.sorted_words(each for each in found if each is not None))


def _joined(plan: _Plan) -> Iterator[Arrays]:
    wanted = list(dict.fromkeys(column for group in plan.chosen.values() for column in group))
    start = 0
    for batch in plan.table.batches(wanted):
        parts = {}
        for column, part in batch.items():
            if column in plan.ids:
                parts[column] = _numbered(part, plan.ids[column])
            elif column in plan.categories:
                parts[column] = _codes(plan, column, part)
            elif column == plan.time or part.dtype.kind == "M":
                parts[column] = _seconds(plan, column, part, start)
            else:
                parts[column] = _numbers(plan, column, part, start)
        yield {name: join_columns([_expanded(plan, name, column, parts[column]) for column in group])
               for name, group in plan.chosen.items()}  # fmt: skip
        start += len(next(iter(batch.values())))


def _numbered(ids: Array, numbers: dict[object, int]) -> Array:
    """Replaces ids of any type by integers, which are added to `numbers` for new ones."""
    return np.array([numbers.setdefault(each, len(numbers)) for each in ids.tolist()], np.int64)


def _codes(plan: _Plan, column: str, part: Array) -> Array:
    key = plan.categories[column]
    return cells.to_codes(cells.to_words(part), plan.values[key], plan.where(column))


def _expanded(plan: _Plan, name: str, column: str, part: Array) -> Array:
    """One-hot entries for a category of the observation; other columns as they are."""
    if name in OBS and column in plan.categories:
        return cells.one_hot(part, len(plan.values[plan.categories[column]]))
    return part


def _seconds(plan: _Plan, column: str, part: Array, start: int) -> Array:
    """Seconds since 1970. Timestamps in observations are refused, because later ones lie outside the data."""
    for name in (*OBS, *ACTIONS, "rewards"):
        if column in plan.chosen.get(name, ()) and part.dtype.kind == "M":
            others = ",".join(each for each in plan.chosen[name] if each != column) or "NAME"
            raise TypeError(
                f"{plan.where(column)} holds timestamps, and later ones lie outside the data; leave it out of {name} "
                f"with --columns {name}={others}, and use it for the order of rows with --columns time={column}"
            )
    return cells.seconds(cells.to_times(part, plan.where(column), start) if part.dtype.kind == "O" else part)


def _numbers(plan: _Plan, column: str, part: Array, start: int) -> Array:
    if part.dtype.kind != "O":
        return part
    words = ["" if word is None else word for word in part.tolist()]
    if any(map(cells.is_number, words)):
        return cells.to_numbers(words, plan.where(column), start)  # names the first cell that is not a number
    raise TypeError(
        f"{plan.where(column)} must hold numbers, but row {start} holds {words[0]!r}; read it as a category with "
        f"--categories {column}, or leave it out"
    )


def _drop_incomplete(columns: Arrays, extras: Collection[str]) -> list[str]:
    """Drops other columns with missing values, so that no row is lost for a column that nothing needs."""
    wrong = [name for name in extras if columns[name].dtype.kind == "f" and np.isnan(columns[name]).any()]
    for name in wrong:
        del columns[name]
    named = ", ".join(f"{name!r}" for name in wrong)
    return [f"left out, because values are missing: {named} (keep with --columns NAME=NAME)"] if wrong else []


def _count_from_0(columns: Arrays, plan: _Plan, options: TableOptions) -> int:
    """Renumbers Discrete actions from 0 and returns the number of the first one."""
    actions = columns["actions"]
    if "actions" in plan.values:
        for name in columns.keys() & set(ACTIONS):
            columns[name] = columns[name] + (options.action_start or 0)
        return 0
    whole = actions.dtype.kind in "iu" or _integers_with_gaps(actions)
    if plan.table.spec is not None or options.action_start is not None or actions.ndim > 1 or not whole:
        return 0
    if np.nanmin(actions) != 1 or np.nanmax(actions) < 2:
        return 0
    for name in columns.keys() & set(ACTIONS):
        columns[name] = columns[name] - 1
    return 1


def _integers_with_gaps(actions: Array) -> bool:
    """Whether actions are indices of which some are missing: floats, because integers cannot be missing."""
    if actions.dtype.kind != "f" or actions.size != len(actions):
        return False
    present = actions[~np.isnan(actions)]
    return 0 < len(present) < len(actions) and bool(((present >= 0) & (present % 1 == 0)).all())


def _labels(plan: _Plan) -> dict[str, tuple[str, ...]]:
    """Names of the entries of each column: `temperature`, or `machine=A` for a category."""
    return {
        name: tuple(
            label
            for column in group
            for label in (
                [f"{column}={value}" for value in plan.values[plan.categories[column]]]
                if name in OBS and column in plan.categories
                else [column]
            )
        )
        for name, group in plan.chosen.items()
    }


def _reading(plan: _Plan, start: int) -> Iterator[str]:
    if plan.time and plan.table.spec is None:
        yield f"{plan.time!r} is the time of the rows, for their order and gaps; it is not part of obs"
    for key, values in plan.values.items():
        shown = ", ".join(values[:8]) + (", ..." if len(values) > 8 else "")
        numbers = f"actions 0 to {len(values) - 1}" if key == "actions" else f"{len(values)} categories"
        yield f"{key!r} has {numbers}: {shown}" if key != "actions" else f"{numbers} are {shown}"
    if start:
        yield (
            "the actions are integers from 1, and 0 never occurs: the policy has the actions from 1 on; if there is "
            "an action 0, list all with --categories actions=0,1,2"
        )
