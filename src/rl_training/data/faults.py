"""What is surely wrong with a dataset's columns: refused, with the column, the row and the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized

import torch
from torch import Tensor


def require_columns(columns: Mapping[str, object], names: Sequence[str]) -> None:
    missing = [name for name in names if name not in columns]
    if missing:
        raise ValueError(f"a dataset needs the columns {list(names)}, missing {missing}, got {list(columns)}")


def require_equal_lengths(columns: Mapping[str, Sized]) -> None:
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"all columns must have the same length, got {lengths}")
    if not any(lengths.values()):
        raise ValueError("the dataset is empty: its columns have no rows")


def require_finite(columns: Mapping[str, Tensor]) -> None:
    for name, column in columns.items():
        if not column.is_floating_point() or bool(column.isfinite().all()):
            continue
        wrong = ~column.isfinite().reshape(len(column), -1).all(1)
        raise ValueError(
            f"column {name!r} is NaN or infinite in {int(wrong.sum())} of {len(column)} rows, "
            f"the first is row {int(wrong.nonzero()[0])}"
        )


def require_flags(columns: Mapping[str, Tensor]) -> None:
    for name in ("dones", "truncated"):
        wrong = (columns[name] != 0) & (columns[name] != 1)
        if bool(wrong.any()):
            first = int(wrong.nonzero()[0])
            raise ValueError(f"column {name!r} must hold 0 or 1, row {first} holds {columns[name][first].item():g}")


def find_breaks(obs: Tensor, next_obs: Tensor) -> Tensor:
    """Per row but the last: whether the following row starts somewhere else than this one led to."""
    here, there = next_obs[:-1].flatten(1), obs[1:].flatten(1)
    if not obs.is_floating_point():
        return (here != there).any(1)
    # Some files keep the two columns in different precision.
    return ~torch.isclose(here, there, rtol=1e-4, atol=1e-5).all(1)
