"""Tables with one column per number, category, episode id or timestamp, completed to transitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from rl_training.data.datasets.durations import TIME
from rl_training.data.readers import cells
from rl_training.data.readers.episodes import join_episodes, marked_ends, numbered, single_ids
from rl_training.data.readers.final_rows import end_before_final_rows
from rl_training.data.readers.names import ACTIONS
from rl_training.data.readers.options import Numbers, TableOptions
from rl_training.data.readers.plan import FLAGS, OBS, Plan, Table, make_plan, other_times, unread_names, unread_times
from rl_training.data.readers.rows import (
    Labels,
    StoredColumns,
    complete_transitions,
    drop_incomplete,
    fill_columns,
    incomplete_notes,
    join_columns,
)
from rl_training.data.readers.timing import TimeColumn, apply_times, unordered_steps
from rl_training.data.words import one_hot, to_codes, to_words
from rl_training.types import Array, Arrays


def read_table(table: Table, given: Mapping[str, str], options: TableOptions) -> StoredColumns:
    plan = make_plan(table, given, options)
    names, time, kinds = plan.names, plan.time, plan.table.kinds
    stamps = tuple(name for name, group in plan.chosen.items() if any(kinds[column] == "time" for column in group))
    columns = fill_columns(_joined(plan), table.rows)
    episodes = _ended_ids(plan, columns) if "episodes" in columns and table.spec is None else {}
    if len(plan.chosen.get("episodes", ())) > 1:  # such as the patient and the visit
        columns["episodes"] = single_ids(columns["episodes"])
    incomplete = drop_incomplete(columns, [name for name in plan.extras if name != time])
    dropped = incomplete_notes(incomplete)
    sorts = table.spec is None and (TIME in given or kinds.get(time) == "time")
    found = next((TimeColumn(name, time, sorts) for name, group in plan.chosen.items() if group == [time]), None)
    is_joined = "episodes" in columns and not (found and found.sorts)
    joined, unsorted = join_episodes(columns, names["episodes"], table.source) if is_joined else (None, ())
    order, warnings = apply_times(columns, names, found, options.max_gap, table.source)
    order, warnings = joined if order is None else order, (*unsorted, *warnings)
    if table.spec is None and TIME not in given:
        steps = unordered_steps(columns, plan.extras) if found is None else other_times(plan, given)
        warnings += (*unread_times(plan, given), *steps)
    warnings += unread_names(plan, given) if table.spec is None else ()
    ended: tuple[str, ...] = ()
    if options.final_rows and table.spec is None:
        ended, lost = end_before_final_rows(columns, names)
        dropped, warnings = (*dropped, *ended), (*warnings, *lost)
    _require_no_numbers(plan, columns["actions"])
    numbers = options.action_numbers or _numbers_of_choices(columns["actions"], plan, options)
    start = _count_from_0(columns, plan, options, numbers)
    notes = (*table.notes, *dropped, *_reading(plan, start))
    key = found.key if found else ""
    labels = Labels(
        _labels(plan), plan.values, start, numbers, _integers_with_gaps(columns["actions"]),
        time=key, times=stamps, date_order=plan.table.orders.get(time, ""), notes=notes, warnings=warnings,
        episodes=episodes, text_ids=frozenset(name for name in options.ids if kinds.get(name) == "text"),
        final_rows=bool(ended), incomplete=(*incomplete, *plan.empty),
    )  # fmt: skip
    timed = key if options.keep_durations else ""
    return complete_transitions(columns, names, table.source, spec=table.spec, labels=labels, order=order, time=timed)


def _ended_ids(plan: Plan, columns: Arrays) -> dict[tuple[object, ...], bool]:
    """The ids of the episodes as the file has them, and whether a row of each marks an end."""
    numbers = columns["episodes"].reshape(len(columns["obs"]), -1).astype(np.int64)
    words = [list(plan.ids[column]) for column in plan.chosen["episodes"]]
    found, ended = (_distinct(rows) for rows in (numbers, numbers[marked_ends(columns)]))
    return {tuple(each[n] for each, n in zip(words, row, strict=True)): row in ended for row in sorted(found)}


def _distinct(rows: Array) -> set[tuple[int, ...]]:
    axis = 0 if rows.shape[1] > 1 else None  # whole rows take longer to sort than numbers
    return set(map(tuple, np.unique(rows, axis=axis).reshape(-1, rows.shape[1]).tolist()))


def _joined(plan: Plan) -> Iterator[Arrays]:
    wanted = list(dict.fromkeys(column for group in plan.chosen.values() for column in group))
    start = 0
    for batch in plan.table.batches(wanted):
        parts = {}
        for column, part in batch.items():
            if column in plan.ids:
                is_mixed = column in plan.mixed_ids
                parts[column] = numbered(part, plan.ids[column], plan.where(column), start, mixed=is_mixed)
            elif column in plan.categories:
                values = plan.values[plan.categories[column]]
                parts[column] = to_codes(part, values, plan.where(column), start)
            elif column == plan.time or plan.table.kinds[column] == "time":
                parts[column] = _seconds(plan, column, part, start)
            elif plan.table.kinds[column] == "text" and (name := plan.role(column, FLAGS)):
                parts[column] = cells.to_flags(to_words(part), column, plan.where(column), FLAGS[name], start)
            else:
                parts[column] = _numbers(plan, column, part, start)
        yield {name: join_columns([_expanded(plan, name, column, parts[column]) for column in group], name)
               for name, group in plan.chosen.items()}  # fmt: skip
        start += len(next(iter(batch.values())))


def _expanded(plan: Plan, name: str, column: str, part: Array) -> Array:
    """One-hot entries for a category of the observation; other columns as they are."""
    if name in OBS and column in plan.categories:
        return one_hot(part, len(plan.values[plan.categories[column]]))
    return part


def _seconds(plan: Plan, column: str, part: Array, start: int) -> Array:
    """Seconds since 1970. Timestamps in observations are refused, because later ones lie outside the data."""
    name = plan.role(column, (*OBS, *ACTIONS, "rewards"))
    if name and plan.table.kinds[column] == "time":
        others = ",".join(each for each in plan.chosen[name] if each != column) or "NAME"
        raise TypeError(
            f"{plan.where(column)} holds timestamps, and later ones lie outside the data; leave it out of {name} "
            f"with --columns {name}={others}, and use it for the order of rows with --columns time={column}"
        )
    order = plan.table.orders.get(column, "")
    return cells.seconds(cells.to_times(part, plan.where(column), start, order) if part.dtype.kind == "O" else part)


def _numbers(plan: Plan, column: str, part: Array, start: int) -> Array:
    if part.dtype.kind != "O":
        return part
    if plan.table.kinds[column] != "text":  # also booleans of which some are missing
        return cells.from_objects(part, plan.where(column), start)
    words = ["" if word is None else word for word in part.tolist()]
    return cells.to_numbers(words, plan.where(column), start)  # names the first cell that is not a number


def _numbers_of_choices(actions: Array, plan: Plan, options: TableOptions) -> Numbers | None:
    """The numbers of choices that may begin with 1; None if the first one is known, or the actions are no choices."""
    is_list = actions.ndim > 1 and len(plan.chosen["actions"]) == 1  # numbered from 0, as arrays are
    is_known = "actions" in plan.values or plan.table.spec is not None or options.action_start is not None
    if is_known or is_list or not _are_choices(actions):
        return None
    flat = actions.reshape(len(actions), -1)
    return Numbers(*(tuple(each.reduce(flat).tolist()) for each in (np.fmin, np.fmax)))  # both pass over NaN


def _count_from_0(columns: Arrays, plan: Plan, options: TableOptions, numbers: Numbers | None) -> int | tuple[int, ...]:
    """Renumbers choices from 0 and returns the number of the first one, for each of several columns."""
    if "actions" in plan.values:
        for name in columns.keys() & set(ACTIONS):
            columns[name] = columns[name] + (options.action_start or 0)
        return 0
    if numbers is None:
        return 0
    starts = numbers.from_1.astype(np.int64)
    is_single = columns["actions"].ndim == 1
    if not is_single:
        starts *= [column not in plan.categories for column in plan.chosen["actions"]]
    for name in columns.keys() & set(ACTIONS) if starts.any() else ():
        columns[name] = columns[name] - (starts[0] if is_single else starts)
    return int(starts[0]) if is_single else tuple(starts.tolist())


def _are_choices(actions: Array) -> bool:
    return actions.dtype.kind in "iu" or _integers_with_gaps(actions)


def _require_no_numbers(plan: Plan, actions: Array) -> None:
    """Raises ValueError if categories stand beside numbers in the columns of the actions."""
    columns = plan.chosen["actions"]
    names = [column for column in columns if column in plan.categories]
    if len(columns) > 1 and names and not _are_choices(actions):
        raise ValueError(
            f"{plan.where(names[0])} is a category, but the actions {', '.join(columns)} have numbers beside it; read "
            "these as categories too, with --categories NAME, or round them to integers"
        )


def _integers_with_gaps(actions: Array) -> bool:
    """Whether actions are indices of which some are missing: floats, because integers cannot be missing."""
    if actions.dtype.kind != "f":
        return False
    present = actions[~np.isnan(actions)]
    return 0 < len(present) < actions.size and bool(((present >= 0) & (present % 1 == 0)).all())


def _labels(plan: Plan) -> dict[str, tuple[str, ...]]:
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


def _reading(plan: Plan, start: int | tuple[int, ...]) -> Iterator[str]:
    if plan.time and plan.table.spec is None:
        yield f"{plan.time!r} is the time of the rows, for their order and gaps; it is not part of obs"
    for key, values in plan.values.items():
        if flag := plan.role(key, FLAGS):
            yield f"rows whose {key!r} is {values[-1]!r} are {FLAGS[flag]}, those with {values[0]!r} are not"
            continue
        shown = ", ".join(values[:8]) + (", ..." if len(values) > 8 else "")
        numbers = f"actions 0 to {len(values) - 1}" if key == "actions" else f"{len(values)} categories"
        yield f"{key!r} has {numbers}: {shown}" if key != "actions" else f"{numbers} are {shown}"
    firsts = {"actions": start} if isinstance(start, int) else dict(zip(plan.chosen["actions"], start, strict=True))
    if len(firsts) > 1:
        numbers = "" if firsts.keys() & plan.categories.keys() else "; set --action-range LOW,HIGH if they are numbers"
        yield f"the actions are choices in {len(firsts)} columns: {', '.join(firsts)}{numbers}"
    for name in (name for name, first in firsts.items() if first):
        yield (
            f"the actions{f' in {name!r}' * (len(firsts) > 1)} are integers from 1, and 0 never occurs: the policy has "
            f"the actions from 1 on; if there is an action 0, list all with --categories {name}=0,1,2"
        )
