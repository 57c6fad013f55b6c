"""Result of one estimator for one policy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rl_training.statistics import Interval


@dataclass(frozen=True)
class EstimatorResult:
    """Result of one estimator, or the reason why there is none."""

    estimate: float | None = None
    interval: Interval | None = None  # 95%
    effective_sample_size: float | None = None  # in episodes; importance sampling only
    window: int | None = None  # decisions that a weight covers; None: all
    cloned: bool | None = None  # whether the behaviour policy was cloned from the data
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "interval": None if self.interval is None else list(self.interval)}
