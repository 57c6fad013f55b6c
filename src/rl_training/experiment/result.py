"""The result of a training run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class TrainResult:
    run_dir: Path
    checkpoint_path: Path | None
    metrics: dict[str, float | None]
    status: str = "finished"
    steps: int = 0
    updates: int = 0
    updates_per_second: float = 0.0
    seconds: float = 0.0  # since the start or the last resume
    best_checkpoint: Path | None = None
    evaluation: dict[str, Any] | None = None
    stop_reason: str | None = None
    signal: int | None = field(default=None, compare=False)  # that stopped the run

    def to_json(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "run_dir": str(self.run_dir),
            "checkpoint": None if self.checkpoint_path is None else str(self.checkpoint_path),
            "best_checkpoint": None if self.best_checkpoint is None else str(self.best_checkpoint),
            "steps": self.steps,
            "updates": self.updates,
            "updates_per_second": self.updates_per_second,
            "seconds": self.seconds,
            "metrics": self.metrics,
            "evaluation": self.evaluation,
            "stop_reason": self.stop_reason,
        }

    @classmethod
    def from_json(cls, run_dir: Path, values: dict[str, Any]) -> TrainResult:
        """Reads a result; paths are relative to `run_dir`, which may have moved."""
        paths = {name: values[name] and run_dir / Path(values[name]).relative_to(values["run_dir"])
                 for name in ("checkpoint", "best_checkpoint")}  # fmt: skip
        same = ("metrics", "status", "steps", "updates", "updates_per_second", "seconds", "evaluation", "stop_reason")
        return cls(
            run_dir,
            paths["checkpoint"],
            best_checkpoint=paths["best_checkpoint"],
            **{name: values[name] for name in same},
        )
