"""The state of a training run, and the protocol of its lane."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rl_training.envs.group import Episode
from rl_training.types import Metrics, Source

if TYPE_CHECKING:
    from rl_training.algorithms import Updater


@dataclass
class CollectResult:
    num_env_steps: int = 0
    episodes: list[Episode] = field(default_factory=list)
    metrics: Metrics = field(default_factory=dict)  # of models that the lane fits itself
    doing: str = ""  # shown as progress while no step is taken


class Lane(Protocol):
    """The source of batches; defines what one training step is."""

    @property
    def step(self) -> int: ...

    @property
    def source(self) -> Source: ...

    @property
    def replay(self) -> Any:
        """The replay buffer whose transitions are saved in segments, or None."""

    def collect(self, limit: int) -> CollectResult:
        """Advances by at most `limit` steps offline, or by one rollout or environment step online."""

    def due(self) -> int:
        """Returns the number of updates to run before the next `collect`."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        """Restores the lane. Returns reasons why the run may differ from an uninterrupted one; empty if it is exact."""


class Best(NamedTuple):
    step: int
    score: float


class DivergedError(RuntimeError):
    """Training diverged: values are NaN or infinite."""


@dataclass
class TrainerState:
    updater: Updater
    lane: Lane
    total_timesteps: int
    previous_step: int = 0
    metrics: dict[str, float | None] = field(default_factory=dict)  # last logged
    evaluation: dict[str, Any] | None = None  # last evaluation
    best: Best | None = None
    stop_reason: str | None = None
    status: str = "running"

    @property
    def global_step(self) -> int:
        return self.lane.step

    @property
    def updates(self) -> int:
        return self.updater.updates

    @property
    def progress(self) -> float:
        return min(self.global_step / self.total_timesteps, 1.0)

    @property
    def over(self) -> bool:
        return self.stop_reason is not None or self.global_step >= self.total_timesteps

    def passed(self, interval: int) -> bool:
        """Whether the last iteration of the training loop crossed a multiple of `interval`."""
        return interval > 0 and self.global_step // interval > self.previous_step // interval

    def request_stop(self, reason: str, *, status: str = "stopped") -> None:
        """Ends training at the next step boundary.

        The first reason is kept, except that the end of a run replaces an interruption (status "stopped").
        """
        if self.stop_reason is None or (self.status == "stopped" and status != "stopped"):
            self.stop_reason, self.status = reason, status

    def forget_end(self) -> None:
        """Lets a run train on beyond the stop that was restored from its checkpoint."""
        self.stop_reason, self.status = None, "running"

    def state_dict(self) -> dict[str, Any]:
        best = None if self.best is None else list(self.best)
        # An interrupted run continues, so only the stop of a run that has ended is saved.
        ended = None if self.stop_reason is None or self.status == "stopped" else [self.status, self.stop_reason]
        return {
            "previous_step": self.previous_step, "evaluation": self.evaluation, "best": best, "metrics": self.metrics,
            "ended": ended,
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.previous_step, self.evaluation = state["previous_step"], state["evaluation"]
        self.best = None if state["best"] is None else Best(*state["best"])
        self.metrics = state.get("metrics", {})
        if state.get("ended") is not None:
            self.status, self.stop_reason = state["ended"]
