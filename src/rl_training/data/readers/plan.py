"""Plans the reading of a table: the role of each column, and the columns of ids, times, flags and categories."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from rl_training.data.datasets.durations import TIME
from rl_training.data.readers import cells
from rl_training.data.readers.dates import DAY, MONTH, looks_like_date, order_of
from rl_training.data.readers.episodes import Warnings
from rl_training.data.readers.names import (
    ACTIONS,
    TIME_NAMES,
    capitalised,
    choose_names,
    matching_columns,
    other_names,
    with_one_use,
)
from rl_training.data.readers.options import TableOptions
from rl_training.data.words import to_words
from rl_training.messages import did_you_mean
from rl_training.types import Arrays, EnvSpec

OBS = ("obs", "next_obs")
FLAGS = {"dones": "terminated", "truncated": "truncated"}  # columns of flags, and what they mark
STANDARD = (*OBS, *ACTIONS, *FLAGS, "rewards", "episodes", "returns_to_go")
SAMPLE = 2**12  # cells that show whether a column of text holds timestamps


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
    orders: Mapping[str, str] = field(default_factory=dict)  # day or month first, by column of dates
    unread: Mapping[str, str] = field(default_factory=dict)  # why a column of text that may hold times is not read


@dataclass
class Plan:
    """The columns of a table to read, and how."""

    table: Table
    names: dict[str, str]  # column name, and its pattern in the file
    chosen: dict[str, list[str]]  # column name, and the columns of the file that it is built from
    extras: list[str]  # other columns of numbers
    empty: list[str]  # other columns without any value
    time: str = ""  # column of the file with the time
    categories: dict[str, str] = field(default_factory=dict)  # column of the file, and the key of its categories
    values: dict[str, tuple[str, ...]] = field(default_factory=dict)  # categories by key
    ids: dict[str, dict[object, int]] = field(default_factory=dict)  # columns of ids, with the number of each
    mixed_ids: Collection[str] = ()  # of these, columns that hold text in some files and numbers in others

    def where(self, column: str) -> str:
        return f"{self.table.source}: column {column!r}"

    def role(self, column: str, names: Iterable[str]) -> str | None:
        """The first of `names` that a column of the file is used for."""
        return next((name for name in names if column in self.chosen.get(name, ())), None)


def make_plan(table: Table, given: Mapping[str, str], options: TableOptions) -> Plan:
    table = _with_text_times(table, options) if options.text_times else table
    usable = [name for name in table.names if table.kinds[name] == "number"]
    names = choose_names(table.names, given, table.source, usable=usable)
    names = with_one_use(names, given, table.names, table.source)
    time = _time_column(table, given, names, options)
    chosen = {name: matching_columns(pattern, table.names) for name, pattern in names.items()}
    used = {column for group in chosen.values() for column in group}
    others = other_names(table.names, names, given)
    extras, empty = ([name for name in others if table.kinds[name] == kind] for kind in ("number", "empty"))
    if missing := [name for name in options.ids if name not in table.names]:
        close = did_you_mean(missing[0], table.names)
        raise ValueError(f"{table.source} has no column {missing[0]!r} to keep as ids; it has {table.names}{close}")
    ids = _ids(table, chosen, options)
    kept = [name for name in options.ids if name in ids and name not in chosen]  # also those of the episodes
    chosen |= {name: [name] for name in [*(name for name in extras if name not in used), *kept]}
    chosen |= {time: [time]} if time and time not in used else {}
    plan = Plan(table, names, chosen, extras, empty, time, ids=ids, mixed_ids=options.mixed_ids)
    _plan_categories(plan, options)
    return plan


def _with_text_times(table: Table, options: TableOptions) -> Table:
    """Recognises columns of text, and of objects with a name such as `time`, whose first cells are all timestamps."""
    named = [name for name, kind in table.kinds.items() if kind == "other" and name.lower() in TIME_NAMES]
    text = [name for name, kind in table.kinds.items() if kind == "text"]
    kinds, orders, unread = dict(table.kinds), dict[str, str](), dict[str, str]()
    first = next(table.batches(text), {}) if text else {}
    for name in named:
        with suppress(TypeError, ValueError):  # bytes or structs, which are not read
            first = {**first, **next(table.batches([name]), {})}
    for name, column in first.items():
        words = [word for word in to_words(column[:SAMPLE]) if word]
        if not words:
            continue
        is_date = not all(map(cells.is_time, words)) and all(map(looks_like_date, words))
        order = (_order(table, name, words) or options.date_order) if is_date else ""
        wrong = next((word for word in words if not cells.is_time(word, order)), None)
        if wrong is None:
            kinds[name], orders[name] = "time", order
        elif is_date and not order:
            unread[name] = f"dates such as {words[0]!r} do not show one order of day and month"
        elif is_date or name.lower() in TIME_NAMES:
            unread[name] = f"{wrong!r} is no timestamp that can be read"
    return replace(table, kinds=kinds, orders=orders, unread=unread)


def _order(table: Table, name: str, first: Sequence[str]) -> str:
    """The order of day and month that the first dates show, or if these fit both orders, the dates of all rows."""
    if (order := order_of(first)) in (DAY, MONTH):
        return order
    batches = (to_words(batch[name]) for batch in table.batches([name]))
    return order_of({word for batch in batches for word in batch if word})


def unread_times(plan: Plan, given: Mapping[str, str]) -> Warnings:
    """Warns of columns that may hold times and that nothing reads; beside another time, of those with such a name."""
    used = {column for group in plan.chosen.values() for column in group} | plan.categories.keys() | plan.ids.keys()
    fix = "write it as 2026-01-31T12:30:00 to order the rows, or leave it out with --columns"
    return tuple(
        ("unread_time", f"{name!r} is ignored: {reason}", f"{fix} {name}=")
        for name, reason in plan.table.unread.items()
        if name not in used and given.get(name) != "" and (not plan.time or name.lower() in TIME_NAMES)
    )


def unread_names(plan: Plan, given: Mapping[str, str]) -> Warnings:
    """Warns of columns such as `Done` that are ignored because of their capitals."""
    found = capitalised(plan.names, plan.table.names).items()
    free = [(name, column) for name, column in found if name not in given and given.get(column) != ""]
    fixes = [f"use --columns {name}={column}, or {column}= to ignore it" for name, column in free]
    texts = [f"{column!r} is not read as {name}" for name, column in free]
    return tuple(("unread_name", *both) for both in zip(texts, fixes, strict=True))


def other_times(plan: Plan, given: Mapping[str, str]) -> Warnings:
    """Warns if the time was taken from one of several columns of timestamps."""
    if plan.time.lower() in TIME_NAMES:
        return ()
    used = {column for group in plan.chosen.values() for column in group}
    times = [name for name, kind in plan.table.kinds.items() if kind == "time" and given.get(name) != ""]
    if not (others := [name for name in times if name not in used]):
        return ()
    names = " and ".join(map(repr, others))
    text = f"{plan.time!r} is taken as the time of the rows, but {names} may be meant"
    return (("several_times", text, "name the time that orders the rows with --columns time=NAME"),)


def _ids(table: Table, chosen: Mapping[str, list[str]], options: TableOptions) -> dict[str, dict[object, int]]:
    """The columns of episodes, and those of text, or of the episodes, that are to keep as ids, such as a patient's."""
    # Text in observations and actions is read as categories.
    learned = {column for name in (*OBS, *ACTIONS) for column in chosen.get(name, ())}
    episodes = chosen.get("episodes", ())
    asked = {
        column: numbers
        for column, numbers in options.ids.items()
        if (table.kinds.get(column) == "text" or column in {*episodes, *options.mixed_ids}) and column not in learned
    }
    return {column: {} for column in episodes} | asked


def _time_column(table: Table, given: Mapping[str, str], names: Mapping[str, str], options: TableOptions) -> str:
    """The column that orders the rows: the one named, or one with timestamps or a name such as `timestamp`."""
    if TIME in given:
        return next(iter(matching_columns(given[TIME], table.names)), "")
    standard = (pattern for name, pattern in names.items() if name in STANDARD)
    used = {column for pattern in standard for column in matching_columns(pattern, table.names)} | {*options.categories}
    free = [name for name in table.names if name not in used and given.get(name) != ""]
    times = [name for name in free if table.kinds[name] == "time"]
    numbers = [name for name in free if name.lower() in TIME_NAMES and table.kinds[name] == "number"]
    return next(iter([*(name for name in times if name.lower() in TIME_NAMES), *times, *numbers]), "")


def _plan_categories(plan: Plan, options: TableOptions) -> None:
    """Decides which columns are categories, and finds their values where they are not given."""
    table, chosen = plan.table, plan.chosen
    asked = dict(options.categories) if table.spec is None else {}  # files written here hold numbers
    _require_used(plan, [] if options.is_known else list(asked), list(asked))
    for name, group in chosen.items():
        now = chosen.get(name.removeprefix("next_"), group)  # next_obs has the categories of obs
        for column, partner in zip(group, now if len(now) == len(group) else group, strict=True):
            key = "actions" if name in ACTIONS and len(group) == 1 else partner
            is_text = table.kinds[column] == "text" and name not in (*OBS, *FLAGS, "rewards")
            is_text &= column not in plan.ids and column != plan.time
            values = asked.get(key) or asked.get(column) or (asked.get(name) if len(group) == 1 else None) or ()
            is_asked = bool({column, key} & asked.keys()) or (name in asked and len(group) == 1)
            if name in FLAGS and table.kinds[column] == "text" and is_asked:
                is_asked = _lists_two(plan, column, values)
            if is_asked or is_text:
                plan.categories[column] = key
                asked.setdefault(key, values)
    for key in dict.fromkeys(plan.categories.values()):
        plan.values[key] = tuple(map(str, asked[key])) or _values(plan, key)


def _lists_two(plan: Plan, column: str, values: Sequence[str]) -> bool:
    """Whether the words of a flag are given in order; without them, they must be yes and no."""
    if values and len(values) != 2:
        raise ValueError(
            f"{plan.where(column)} marks ends of episodes, so it must have two values, not {', '.join(values)}; list "
            f"two with --categories {column}=NO,YES, where YES marks an end"
        )
    return bool(values)


def _require_used(plan: Plan, asked: Sequence[str], existing: Sequence[str]) -> None:
    """Raises ValueError for a category that is not in the table, or that nothing reads."""
    table = plan.table
    if missing := [name for name in existing if name not in table.names and name not in STANDARD]:
        close = did_you_mean(missing[0], table.names)
        raise ValueError(
            f"{table.source} has no column {missing[0]!r} to read as a category; it has {table.names}{close}"
        )
    used = {column for group in plan.chosen.values() for column in group} | {*plan.chosen}
    if unused := [name for name in asked if name not in used]:
        raise ValueError(
            f"{plan.where(unused[0])} is not used, so --categories {unused[0]} has no effect; add it to obs with "
            f"--columns obs={plan.names['obs']},{unused[0]}, or leave out the option"
        )
    if wide := [name for name in asked if len(plan.chosen.get(name, ())) > 1]:
        raise ValueError(
            f"{wide[0]} has the columns {', '.join(plan.chosen[wide[0]])}; name those to read as categories, such as "
            f"--categories {plan.chosen[wide[0]][0]}"
        )


def _values(plan: Plan, key: str) -> tuple[str, ...]:
    columns = [column for column, own in plan.categories.items() if own == key]
    words: set[str | None] = set()
    for batch in plan.table.batches(columns):
        for column in batch.values():
            words.update(to_words(column))
    if len(found := words - {None}) > cells.MOST_CATEGORIES:
        raise ValueError(
            f"{plan.where(columns[0])} has {len(found):,} different values, too many for a category (at most "
            f"{cells.MOST_CATEGORIES:,}); leave it out with --columns, such as {columns[0]}="
        )
    return tuple(cells.sorted_words(each for each in found if each is not None))
