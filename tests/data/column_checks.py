"""Checks columns that a test has made as if they were those of a file."""

from __future__ import annotations

from typing import Any

import numpy as np

from rl_training.data.datasets.checks import inspect_columns
from rl_training.data.datasets.report import DatasetReport
from rl_training.data.readers.rows import StoredColumns
from rl_training.types import EnvSpec

TORQUE = EnvSpec((1,), "box", 1, "float32", (1,), (-2.0,), (2.0,))


def inspect(columns: dict[str, np.ndarray], **options: Any) -> DatasetReport:
    stored = StoredColumns(columns=columns, names={name: name for name in columns}, rows=len(columns["obs"]), spec=None)
    return inspect_columns(stored, **options)


def kinds(report: DatasetReport) -> list[tuple[str, str]]:
    return [(finding.kind, finding.severity) for finding in report.findings]
