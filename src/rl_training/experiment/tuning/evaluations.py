"""Reads the evaluations of a trial's seeds from their logs, also while they train."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from rl_training.runtime.metrics_table import METRICS


class Evaluations:
    """The mean returns of all seeds. A log is read again only after it has changed."""

    def __init__(self, runs: Sequence[Path]) -> None:
        self._files = [run / METRICS for run in runs]
        self._seen: dict[Path, tuple[int, int]] = {}
        self._returns: dict[Path, dict[int, float]] = {}

    def shared(self, interval: int) -> dict[int, float]:
        """The mean over seeds at each multiple of `interval` that every seed has passed.

        The step of an evaluation is rounded down: rollouts of other lengths are evaluated at other steps, and trials
        are compared at equal ones.
        """
        seeds = []
        for returns in self._read():
            rounded: dict[int, float] = {}
            for step, value in returns.items():
                rounded.setdefault(step // interval * interval, value)
            seeds.append(rounded)
        steps = sorted(set.intersection(*map(set, seeds)))
        return {step: fmean(returns[step] for returns in seeds) for step in steps}

    def last(self) -> float | None:
        """The mean over seeds of the last evaluation; None unless all were evaluated."""
        seeds = self._read()
        return fmean(returns[max(returns)] for returns in seeds) if all(seeds) else None

    def _read(self) -> list[dict[int, float]]:
        for file in self._files:
            try:
                status = file.stat()
            except OSError:  # not written yet
                continue
            if self._seen.get(file) != (status.st_size, status.st_mtime_ns):
                self._seen[file] = status.st_size, status.st_mtime_ns
                self._returns[file] = _returns(file)
        return [self._returns.get(file, {}) for file in self._files]


def _returns(file: Path) -> dict[int, float]:
    """The mean return of each evaluation, by its step; an incomplete last line is left out."""
    lines = [line for line in file.read_bytes().split(b"\n")[:-1] if b'"evaluation"' in line]
    rows = [json.loads(line)["evaluation"] for line in lines]
    return {row["step"]: row["return_mean"] for row in rows}
