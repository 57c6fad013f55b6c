"""The order in which files and datasets hold the columns of observations and actions."""

from collections.abc import Sequence
from typing import TypeAlias

from rl_training.data.readers.rows import StoredColumns
from rl_training.types import EnvSpec

Order: TypeAlias = "dict[str, tuple[str, ...]]"  # obs and actions, and the columns that they are made of


def order_in_file(stored: StoredColumns) -> Order:
    """The columns of a table, or those of the table that a file was written from."""
    return order_of(stored.spec) if stored.spec else {name: stored.labels.names.get(name, ()) for name in order_of()}


def order_of(spec: EnvSpec | None = None) -> Order:
    return {"obs": (spec and spec.obs_names) or (), "actions": (spec and spec.action_columns) or ()}


def require_same_order(orders: Sequence[Order], sources: Sequence[object]) -> None:
    """Raises ValueError if one of several sources has the columns of the first in another order."""
    for order, source in zip(orders, sources, strict=True):
        for name, columns in order.items():
            first = orders[0][name]
            if columns != first and sorted(columns) == sorted(first):
                raise ValueError(
                    f"{source} has the {name} {','.join(columns)}, but {sources[0]} has {','.join(first)}; name them "
                    f"in one order with --columns {name}={','.join(first)}"
                )
