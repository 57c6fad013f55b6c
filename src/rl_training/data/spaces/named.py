"""Observations and actions by the names of a table: columns, and the values of categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rl_training.data.words import category_words
from rl_training.messages import Warn, close_name
from rl_training.types import Array, EnvSpec

CONVERTED = "; `data convert` and `data split` join observations in one column, so give the table that it was made from"


def is_named(obs: Any, spec: EnvSpec) -> bool:
    """Whether observations have the column names of the data: a dict, a DataFrame, a row of one, or a list of them."""
    if spec.obs_names is None:
        return False
    is_list = isinstance(obs, (list, tuple)) and len(obs) and not hasattr(obs, "_asdict")
    first = obs[0] if is_list else obs
    names = first._fields if hasattr(first, "_asdict") else first.keys() if hasattr(first, "keys") else ()
    is_row = not {*names}.isdisjoint(named_columns(spec)[0])
    return is_row or isinstance(first, Mapping) or hasattr(first, "columns")


def named_rows(obs: Any, spec: EnvSpec, warn: Warn) -> Array:
    """Rows of observations from values by column: `{"temperature": 20.5, "machine": "A"}`, or a list of them.

    The values of a dict may be lists of equal length. A pandas or polars DataFrame is such a dict.
    """
    obs = obs._asdict() if hasattr(obs, "_asdict") else obs  # a row of DataFrame.itertuples
    if isinstance(obs, (list, tuple)):
        return np.stack([named_rows(each, spec, warn) for each in obs])
    obs = {str(name): obs[name] for name in (obs.columns if hasattr(obs, "columns") else obs.keys())}
    columns, categories = named_columns(spec)
    entries = [_column(label, categories) for label in spec.obs_names or ()]
    check_columns("obs", [*obs], columns, warn)
    words = {name: _category(np.asarray(obs[name]), name, categories[name]) for name in categories.keys() & {*columns}}
    parts = [
        np.asarray(obs[column]) if value is None else np.asarray(words[column] == value) for column, value in entries
    ]
    rows = [_numbers(part, column) for (column, _), part in zip(entries, parts, strict=True)]
    if len({part.shape for part in rows}) > 1:
        raise ValueError("obs must hold as many values for each column")
    return np.stack(rows, axis=-1)


def _category(column: Array, name: str, known: Sequence[str]) -> Array:
    """The words of a category; raises ValueError for one that is not known."""
    values = column.reshape(-1)
    words = category_words(values, known)
    if wrong := [value for value, word in zip(values.tolist(), words, strict=True) if word not in known]:
        raise ValueError(f"obs: {name} must be one of {', '.join(known)}, got {wrong[0]!r}")
    return np.array(words, object).reshape(column.shape)


def check_columns(source: str, given: Sequence[str], columns: Sequence[str], warn: Warn) -> None:
    """Raises ValueError if observations lack a column that the agent reads, and warns of those that it ignores."""
    if missing := [name for name in columns if name not in given]:
        close = close_name(missing[0], [name for name in given if name not in columns])
        fix = CONVERTED if "obs" in given else "" if close is None else f"; rename {close!r}"
        raise ValueError(f"{source} has no column {missing[0]!r}, which the agent reads; it has {[*given]}{fix}")
    if ignored := [name for name in given if name not in columns]:
        warn(f"{source}: columns that the agent does not read are ignored: {', '.join(ignored)}")


def _numbers(values: Array, column: str) -> Array:
    try:
        return values.astype(np.float32)
    except (ValueError, TypeError) as error:
        raise ValueError(f"obs: {column} must hold numbers, got {values.tolist()!r:.60}") from error


def named_columns(spec: EnvSpec) -> tuple[list[str], dict[str, list[str]]]:
    """The columns of the data that observations are built from, and the values of categories by column."""
    entries = spec.obs_names or ()
    categories = {
        name: values
        for name, values in (spec.categories or {}).items()
        if name != "actions" and any(label.startswith(f"{name}=") for label in entries)
    }
    return list(dict.fromkeys(_column(label, categories)[0] for label in entries)), categories


def _column(label: str, categories: Mapping[str, Sequence[str]]) -> tuple[str, str | None]:
    """The column of an entry, and the value of the category that the entry stands for."""
    for name, values in categories.items():
        if label.startswith(f"{name}=") and label[len(name) + 1 :] in values:
            return name, label[len(name) + 1 :]
    return label, None


def action_names(spec: EnvSpec) -> list[str] | None:
    """The names of Discrete actions in the data, in order; None if they are numbers."""
    return (spec.categories or {}).get("actions")


def choice_names(spec: EnvSpec) -> dict[str, list[str] | None] | None:
    """The names of the actions of each choice by its column in the data, None for integers; None if no choice has."""
    names = {column: (spec.categories or {}).get(column) for column in spec.action_columns or ()}
    return names if any(names.values()) else None


def named_choices(actions: Array, spec: EnvSpec) -> dict[str, Any] | None:
    """MultiDiscrete actions [..., choices] by their columns in the data if some of them have names, else None."""
    if (names := choice_names(spec)) is None:
        return None
    choices = zip(names.items(), np.moveaxis(actions, -1, 0), strict=True)
    return {column: values if own is None else np.array(own)[values] for (column, own), values in choices}
