"""Columns of ids: one number for each id, and the rows of an episode put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rl_training.data.datasets.validation import DatasetError, same_rows
from rl_training.data.readers.names import STEP_NAMES, TIME_NAMES
from rl_training.data.words import is_missing, plain_word, to_words
from rl_training.messages import first_few, many
from rl_training.types import Array, Arrays

TRUNCATED_TERMINALS = "truncated_terminals"
MUCH = 0.2  # of the rewards
EXACT = 2**53  # larger floats do not hold every integer

Warnings = tuple[tuple[str, str, str], ...]  # kind, text and fix


def numbered(ids: Array, numbers: dict[object, int], where: str, start: int, *, mixed: bool = False) -> Array:
    """Replaces ids of any type by integers, which are added to `numbers` for new ones; `start` is the first row.

    If the ids are `mixed`, text that is a number, such as 007, is the same id as the number.
    """
    require_ids(ids, where, start)
    words = [plain_word(word or "") for word in to_words(ids)] if mixed else ids.tolist()
    return np.array([numbers.setdefault(each, len(numbers)) for each in words], np.int64)


def require_ids(ids: Array, where: str, start: int = 0) -> None:
    """Raises DatasetError for ids that are missing, or that floats round."""
    ids = ids.reshape(-1)
    missing = np.isnan(ids) if ids.dtype.kind == "f" else np.zeros(len(ids), bool)
    if ids.dtype.kind == "O":
        missing = np.array([is_missing(each) for each in ids])
    if missing.any():
        raise DatasetError(
            f"{where} has no id in {many(int(missing.sum()), 'row')}, the first is row {start + int(missing.argmax())}",
            "fill it, or remove these rows",
        )
    if ids.dtype.kind == "f" and (np.abs(ids) >= EXACT).any():
        row = int((np.abs(ids) >= EXACT).argmax())
        raise DatasetError(
            f"{where} holds {ids[row]:.17g} in row {start + row}, and ids of this size are rounded",
            "write them as text, such as id-123",
        )


def single_ids(ids: Array) -> Array:
    """One integer for each id, or for each combination of the ids of several columns, in the order of the rows."""
    flat = ids.reshape(len(ids), -1)
    axis = 0 if flat.shape[1] > 1 else None
    _, first, number = np.unique(flat, return_index=True, return_inverse=True, axis=axis)
    return np.argsort(np.argsort(first))[number.reshape(-1)]


def marked_ends(columns: Arrays) -> Array:
    """Flags of the rows that dones or truncated mark."""
    ended = np.zeros(len(columns["obs"]), bool)
    for name in columns.keys() & {"dones", "truncated"}:
        ended |= columns[name].reshape(-1) == 1
    return ended


def truncated_terminals(dones: Array, truncated: Array, names: Mapping[str, str]) -> Warnings:
    """Warns if all truncated rows are terminal too: `done` may mark every end, and time limits would not bootstrap."""
    terminals, limits = (names.get(name, name) for name in ("dones", "truncated"))
    if terminals == limits or not truncated.any() or (truncated & ~dones).any():
        return ()
    text = f"all rows that {limits!r} marks are also marked in {terminals!r}, so they are read as terminal"
    fix = f"if {terminals!r} marks time limits too, keep only the terminal rows in it, because others must bootstrap"
    return ((TRUNCATED_TERMINALS, text, fix),)


def lost_rewards(rewards: Array | None, kept: Array) -> Warnings:
    """Warns if the rows that are dropped have most of the rewards, such as one that is given at the end."""
    if rewards is None or rewards.size != len(rewards):
        return ()
    sizes = np.nan_to_num(np.abs(rewards.reshape(-1).astype(np.float64)), posinf=0.0)
    lost, total = len(sizes) - len(kept), float(sizes.sum())
    share = 1 - float(sizes[kept].sum()) / total if total else 0.0
    if share <= MUCH or share * len(sizes) <= 2 * lost:
        return ()
    text = f"the last rows of truncated episodes are left out, and with them more than {MUCH:.0%} of the rewards"
    fix = "if these episodes end there, mark their last rows with 1 in a column, and name it with --columns dones=NAME"
    return (("lost_rewards", text, fix),)


def join_episodes(columns: Arrays, column: str, source: object) -> tuple[Array | None, Warnings]:
    """Puts the rows of an episode together, in recorded order; changes `columns`.

    An id that returns after a marked end, where next_obs leads elsewhere, or where a column of steps starts again,
    starts another episode. Raises DatasetError for rows that look shuffled. Returns the row in the file of each row if
    they were moved, and warnings. `column` is the name of the ids in the file.
    """
    ids = columns["episodes"]
    first = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))  # rows where the id changes
    last = np.append(first[1:], len(ids)) - 1
    by_id = np.argsort(ids[first], kind="stable")
    returns = np.append(False, ids[first][by_id][1:] == ids[first][by_id][:-1])
    goes_on, before, after = returns.copy(), last[by_id][:-1], first[by_id][1:]
    goes_on[1:] &= ~marked_ends(columns)[before]
    if "next_obs" in columns and columns["next_obs"].shape == columns["obs"].shape:
        goes_on[1:] &= same_rows(columns["next_obs"][before], columns["obs"][after])
    if not goes_on.any() or _steps_start_again(columns, first):
        return None, ()
    if "next_obs" not in columns and (returns & ~goes_on).any():
        raise DatasetError(
            f"{source}: rows with the same {column!r} are not together, and some follow a marked end: rows look "
            "shuffled, or the ids are those of several episodes",
            "set the order of the rows with --columns time=NAME, or sort them and give each episode its own id",
        )
    number = np.empty(len(first), np.int64)
    number[by_id] = by_id[np.maximum.accumulate(np.where(goes_on, 0, np.arange(len(first))))]
    episodes = np.repeat(number, last - first + 1)
    order = np.argsort(episodes, kind="stable")
    columns["episodes"] = episodes
    for name in columns:
        columns[name] = columns[name][order]
    count = len(np.unique(number[by_id][goes_on]))
    text = f"rows of {many(count, 'episode')} were not together, and were joined by {column!r}"
    fix = (
        "give each episode its own id if ids are used again, and set the order of time with --columns time=NAME if the "
        "file has another one"
    )
    return order, (("sorted", f"{text} in the order of the file", fix),)


def shared_ids(files: Sequence[Mapping[tuple[object, ...], bool]]) -> Warnings:
    """Warns of ids that are in several files, unless an end is marked where an earlier file has them.

    Each file has the ids of its episodes, and whether an end is marked.
    """
    unended, shared = set[tuple[object, ...]](), dict[tuple[object, ...], None]()
    for ids in files:
        shared |= dict.fromkeys(each for each in ids if each in unended)
        unended |= {each for each, ended in ids.items() if not ended}
    if not shared:
        return ()
    names = first_few([" ".join(map(str, each)) for each in shared])
    text = f"{many(len(shared), 'episode id')} ({names}) in several files: the rows of each file are another episode"
    return (("shared_ids", text, "if they are one episode, write its rows into one file"),)


def _steps_start_again(columns: Arrays, first: Array) -> bool:
    """Whether a column counts the steps from the same number at each row of `first`, as in files that were appended."""
    inside = ~marked_ends(columns)[:-1]
    inside[first[1:] - 1] = False
    counts = (columns[name] for name in columns if name.lower() in (*STEP_NAMES, *TIME_NAMES))
    steps = [each.reshape(-1) for each in counts if each.size == len(each)]
    return bool(inside.any()) and any(
        (each[first] == each[0]).all() and (each[1:] > each[:-1])[inside].all() for each in steps
    )
