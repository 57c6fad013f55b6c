"""Columns of a file that nothing needs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rl_training.types import Arrays


def drop_incomplete(columns: Arrays, extras: Iterable[str]) -> tuple[str, ...]:
    """Drops other columns with missing values, so that no row is lost for a column that nothing needs."""
    wrong = [name for name in extras if columns[name].dtype.kind == "f" and np.isnan(columns[name]).any()]
    for name in wrong:
        del columns[name]
    named = ", ".join(f"{name!r}" for name in wrong)
    return (f"left out, because values are missing: {named} (keep with --columns NAME=NAME)",) if wrong else ()
