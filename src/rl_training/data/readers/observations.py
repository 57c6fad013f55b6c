"""Observations of a table for `predict`: the columns that an agent was trained with, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rl_training.data.readers import TABLES, cells, naming_damage
from rl_training.data.readers.options import TableOptions
from rl_training.data.readers.plan import Table
from rl_training.data.spaces.named import check_columns, named_columns
from rl_training.data.words import category_words
from rl_training.messages import print_warning
from rl_training.types import Array, Arrays, EnvSpec


def is_table(path: Path) -> bool:
    return path.name.endswith(tuple(TABLES))


def read_observations(path: Path, spec: EnvSpec, csv_dialect: str) -> Arrays:
    """The columns of the observations: numbers, and words for categories. Other columns are ignored with a warning."""
    if spec.obs_names is None:
        raise ValueError(
            f"{path}: the run was not trained on a table, so its observations have no column names; use a .npy file"
        )
    read = next(read for ending, read in TABLES.items() if path.name.endswith(ending))
    with naming_damage(path), read(path, TableOptions(csv_dialect)) as table:
        columns, categories = named_columns(spec)
        check_columns(str(path), table.names, columns, print_warning)
        return _joined(table, columns, categories)


def _joined(table: Table, columns: Sequence[str], categories: Mapping[str, Sequence[str]]) -> Arrays:
    parts: dict[str, list[Array]] = {name: [] for name in columns}
    start = 0
    for batch in table.batches(columns):
        for name, part in batch.items():
            if name in categories:
                parts[name].append(np.array(category_words(part, categories[name]), object))
            else:
                parts[name].append(_numbers(part, f"{table.source}: column {name!r}", start))
        start += len(next(iter(batch.values())))
    joined = {name: np.concatenate(each) for name, each in parts.items()}
    for name, column in joined.items():
        missing = np.array([word is None for word in column]) if name in categories else np.isnan(column)
        if missing.any():
            rows = f"{int(missing.sum())} of {len(missing)} rows, the first is row {int(missing.argmax())}"
            raise ValueError(f"{table.source}: column {name!r} is empty in {rows}; fill it, or remove these rows")
    return joined


def _numbers(part: Array, where: str, start: int) -> Array:
    if part.dtype.kind == "M":
        raise TypeError(f"{where} must hold numbers, but it holds timestamps")
    if part.dtype.kind == "O":
        words = ["" if word is None else str(word) for word in part.tolist()]
        if wrong := [row for row, word in enumerate(words) if not cells.is_number(word)]:
            raise TypeError(f"{where} must hold numbers, but row {start + wrong[0]} holds {words[wrong[0]]!r}")
        part = cells.to_numbers(words, where, start)
    return part.astype(np.float64)
