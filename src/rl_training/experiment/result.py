"""The result of a training run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.messages import many

if TYPE_CHECKING:
    from rl_training.runtime.metrics_table import Table

SAME_IN_JSON = ("steps", "updates", "updates_per_second", "seconds", "metrics", "evaluation", "stop_reason")
UNFINISHED = ("stopped", "failed")  # the status of runs that the same command continues


@dataclass(frozen=True)
class TrainResult:
    """The result of a training run. All but `signal` and `trained` is stored in result.json."""

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
    env_restarts: int = 0  # environment workers that died and were replaced, since the start of the run
    signal: int | None = field(default=None, compare=False)  # number of the signal that stopped the run
    trained: bool = field(default=True, compare=False)  # False if the run had finished earlier

    def read_metrics(self, *, table: Table | None = None) -> Any:
        """Returns every logged row as a data frame; see `rl_training.read_metrics`. `metrics` holds the last values."""
        from rl_training.runtime.metrics_table import read_metrics  # imports torch

        return read_metrics(self.run_dir, table=table)

    def report(self) -> dict[str, Any]:
        """Returns the contents of result.json and `trained`, which is not stored."""
        return {**self.to_json(), "trained": self.trained}

    def to_json(self) -> dict[str, Any]:
        paths = {"checkpoint": self.checkpoint_path, "best_checkpoint": self.best_checkpoint}
        return {
            "status": self.status, "run_dir": str(self.run_dir),
            **{name: None if path is None else str(path) for name, path in paths.items()},
            **{name: getattr(self, name) for name in SAME_IN_JSON}, "env_restarts": self.env_restarts,
        }  # fmt: skip

    @classmethod
    def from_json(cls, run_dir: Path, values: dict[str, Any]) -> TrainResult:
        """Reads a stored result; paths are relative to `run_dir`, which may have moved."""
        checkpoint, best = (
            values[name] and run_dir / Path(values[name]).relative_to(values["run_dir"])
            for name in ("checkpoint", "best_checkpoint")
        )
        same = {name: values[name] for name in ("status", *SAME_IN_JSON)}
        restarts = values.get("env_restarts", 0)  # not in older results
        return cls(run_dir, checkpoint, best_checkpoint=best, env_restarts=restarts, trained=False, **same)


def finished_earlier(runs: int) -> str:
    these = "This run" if runs == 1 else "These runs"
    return f"{these} finished earlier; nothing was trained. Use --fresh (fresh=True in Python) to train again."


def nothing_trained(results: Sequence[TrainResult], *, resumed: bool) -> str:
    if not resumed:
        return finished_earlier(len(results))
    steps = results[0].steps
    above = f"Pass --steps above {steps} (total_timesteps in Python) to train it further."
    return f"This run finished earlier, at {many(steps, 'step')}; nothing was trained. {above}"


def is_run(path: Path) -> bool:
    """Whether a directory holds a run that was started; a config.yaml alone may be the user's own file."""
    return (path / "config.yaml").is_file() and any((path / name).exists() for name in ("run.json", "metrics.jsonl"))
