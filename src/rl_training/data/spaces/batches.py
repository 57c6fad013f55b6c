"""Batches of Dict and Tuple observations and actions: from lists of them to arrays, and single entries."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rl_training.data.spaces.description import Description, Leaf


def batched(values: Any, space: Description) -> Any:
    """Turns (nested) lists of Dicts or Tuples into Dicts and Tuples of arrays; others stay as they are.

    A list that fits a Tuple space as a single value is one; use a tuple of arrays for a batch of such values.
    """
    if space["type"] not in ("Dict", "Tuple") or not isinstance(values, (list, tuple, Mapping)):
        return values
    if _is_list_of(values, space):
        try:
            return _transposed([batched(each, space) for each in values])
        except ValueError as error:
            raise ValueError("all observations of a batch must have the same parts and shapes") from error
    subspaces = space["subspaces"]
    if isinstance(values, Mapping) and space["type"] == "Dict":
        return {name: batched(each, subspaces[name]) if name in subspaces else each for name, each in values.items()}
    if isinstance(values, Mapping) or space["type"] == "Dict" or len(values) != len(subspaces):
        return values  # the converter refuses it
    return tuple(batched(each, subspaces[index]) for index, each in enumerate(values))


def is_pair_of_reset(values: Any, space: "Description | None") -> bool:
    """Whether these are an observation and its info, and not observations of the space; None: a plain array."""
    if not (isinstance(values, tuple) and len(values) == 2 and isinstance(values[1], Mapping)):
        return False
    if space is not None and space["type"] == "Tuple" and len(space["subspaces"]) == 2:
        space = space["subspaces"][1]  # this may be a single observation
        if space["type"] == "Dict" and not (isinstance(values[0], tuple) and len(values[0]) == 2):
            return False
    if space is None or space["type"] != "Dict":
        return True
    return not values[1].keys() & space["subspaces"].keys()


def entry(values: Any, index: int) -> Any:
    """Returns one entry of a batch of observations or actions."""
    if isinstance(values, Mapping):
        return {name: entry(each, index) for name, each in values.items()}
    return tuple(entry(each, index) for each in values) if isinstance(values, tuple) else values[index]


def _is_list_of(values: Any, space: Description) -> bool:
    if isinstance(values, Mapping) or not values:
        return False
    if space["type"] == "Dict":
        return all(isinstance(each, (Mapping, list, tuple)) for each in values)
    length = len(space["subspaces"])
    if isinstance(values, tuple) or (len(values) == length and _fits(values, space)):
        return False
    return all(isinstance(each, (list, tuple)) for each in values)


def _fits(value: Any, space: Description) -> bool:
    if space["type"] == "Dict":
        return isinstance(value, Mapping)
    if space["type"] == "Text":
        return isinstance(value, str)
    if space["type"] == "Tuple":
        parts = space["subspaces"]
        is_sequence = isinstance(value, (list, tuple)) and len(value) == len(parts)
        return is_sequence and all(map(_fits, value, parts))
    try:
        return np.shape(value) == Leaf((), space).shape
    except ValueError:  # lists of different lengths
        return False


def _transposed(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, Mapping):
        if any(each.keys() != first.keys() for each in values):
            raise ValueError("different parts")
        return {name: _transposed([each[name] for each in values]) for name in first}
    if isinstance(first, tuple):
        return tuple(_transposed(list(each)) for each in zip(*values, strict=True))
    return np.asarray(values)
