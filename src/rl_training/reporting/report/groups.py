"""The groups of a report and their members."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.reporting.stored_runs import StoredRun

# Errors of files that were edited or damaged; a number may be too large for a float, and JSON nested too deeply.
MALFORMED = (ValueError, TypeError, KeyError, AttributeError, OSError, OverflowError, RecursionError)

LARGEST = 1e300  # sums of a few returns stay finite

Points = list[tuple[float, float]]  # steps and returns


@dataclass(frozen=True)
class Member:
    """One seed of a group."""

    seed: int
    path: Path
    run: StoredRun | None  # None if a bench's run directories were deleted
    status: str  # finished, early_stop, stopped, failed, training or incomplete
    step: int
    total_steps: int
    silent_seconds: float | None  # since the last row of the log
    evaluations: Points
    training: Points
    bench_score: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # of result.json, or of the bench's result
    estimate: dict[str, Any] | None = None  # the bench's score, if it is an off-policy estimate

    @property
    def is_finished(self) -> bool:
        return self.status not in ("stopped", "failed", "training", "incomplete")

    @property
    def has_final_score(self) -> bool:
        """Whether it has finished, or a bench has scored it: a bench counts runs that a callback stopped."""
        return self.is_finished or self.bench_score is not None

    @property
    def last_evaluation(self) -> float | None:
        return self.evaluations[-1][1] if self.evaluations else None

    @property
    def score(self) -> float | None:
        """The score that counts in the comparison: that of the bench, or the last evaluation."""
        return self.last_evaluation if self.bench_score is None else self.bench_score


@dataclass(frozen=True)
class ReportGroup:
    algo: str  # or the config of a bench cell
    options: dict[str, Any]  # in which it differs from other groups of its algorithm
    task: str  # the environment, and the dataset if there is one
    env: str | None
    dataset: str | None
    members: list[Member]
    cell: dict[str, Any] | None = None  # result.json of a bench cell
    label: str = ""  # short; the same in every task
    name: str = ""  # the label, and the task if there are several
    number: int = 0  # of its label: its colour

    @property
    def counted(self) -> list[Member]:
        """The members of the score: those with a final score, or all with an evaluation while none has one."""
        scored = [member for member in self.members if member.score is not None]
        return [member for member in scored if member.has_final_score] or scored

    @property
    def is_preliminary(self) -> bool:
        return not any(member.has_final_score for member in self.counted)

    @property
    def first_run(self) -> StoredRun | None:
        return next((member.run for member in self.members if member.run is not None), None)


@dataclass(frozen=True)
class Gathered:
    groups: list[ReportGroup]
    notes: list[str]

    @property
    def members(self) -> list[Member]:
        return [member for group in self.groups for member in group.members]


def points(pairs: Any) -> Points:
    """The pairs of finite numbers, in the order of their steps."""
    numbers = ((finite(step), finite(value)) for step, value in pairs)
    return sorted({step: (step, value) for step, value in numbers if step is not None and value is not None}.values())


def finite(value: Any) -> float | None:
    """The value as a float; None if it is no number, not finite, or too large."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not -LARGEST <= value <= LARGEST:
        return None
    return float(value)
