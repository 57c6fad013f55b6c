"""The state of a training run, and the protocol of its lane."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rl_training.envs.actions import first_non_finite
from rl_training.envs.pools.group import Episode
from rl_training.types import Action, Metrics, Source

if TYPE_CHECKING:
    from torch import Tensor

    from rl_training.algorithms import Updater


@dataclass
class CollectResult:
    num_env_steps: int = 0
    episodes: list[Episode] = field(default_factory=list)
    metrics: Metrics = field(default_factory=dict)  # of models that the lane fits itself
    doing: str = ""  # shown as progress while no step is taken
    cut: bool = False  # a request to stop ended it early; the next `collect` continues it


class Lane(Protocol):
    """The source of batches; defines what one training step is."""

    stop_by: float  # time.monotonic() from which on `collect` ends early
    overlap: bool  # `collect` runs the updates with `run_updates`, while the environments step
    run_updates: Callable[[int], None]

    @property
    def step(self) -> int: ...

    @property
    def source(self) -> Source: ...

    def collect(self, limit: int) -> CollectResult:
        """Advances by at most `limit` steps offline, or by one rollout or environment step online."""

    def due(self) -> int:
        """Returns the number of updates to run before the next `collect`."""

    def replay_parts(self) -> dict[str, Any]:
        """Returns the replay buffers that checkpoints save in segments, by name."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        """Restores the lane. Returns reasons why the run may differ from an uninterrupted one; empty if it is exact."""


LEFT_FOR_RESUME = ("cut", "evaluation_due")
ENDS = ("stopped", "early_stop", "finished")  # statuses of a requested stop; the last two end the run for good
CUT_SECONDS = 0.5  # a rollout that ends so soon after a request to stop is not cut


class Best(NamedTuple):
    step: int
    score: float


class DivergedError(RuntimeError):
    """Training diverged: values are NaN or infinite."""


class NaNActionsError(DivergedError):
    """The policy's actions are NaN or infinite."""


def checked_action(action: Any, policy: Any) -> Action:
    """Returns the action; raises TypeError if an algorithm from outside the package returned something else."""
    if not isinstance(action, Action):
        name, kind = type(policy).__name__, type(action).__name__
        raise TypeError(f"{name}.act must return rl_training.types.Action, such as Action(actions), got {kind}")
    return action


def finite_actions(actions: Tensor) -> Tensor:
    """Returns the actions on the CPU; raises NaNActionsError if one is NaN or infinite."""
    actions = actions.cpu()
    if actions.is_floating_point() and first_non_finite(actions.numpy()) is not None:
        raise NaNActionsError("the policy's actions are NaN or infinite; lower the learning rate")
    return actions


@dataclass
class TrainerState:
    """The state of a training run, which every callback receives."""

    updater: Updater
    lane: Lane
    total_timesteps: int
    previous_step: int = 0
    metrics: dict[str, float | None] = field(default_factory=dict)  # last logged
    scheduled: dict[str, float] = field(default_factory=dict)  # options of schedules, as the last updates used them
    evaluation: dict[str, Any] | None = None  # last evaluation
    best: Best | None = None
    stop_reason: str | None = None
    status: str = "running"
    cut: bool = False  # the last collect is not complete
    lost: bool = False  # an environment call was interrupted, so the state cannot be saved
    evaluation_due: bool = False  # the evaluation of this step has not ended
    population: TrainerState | None = None  # its state, if this is the state of one member

    @property
    def global_step(self) -> int:
        return self.lane.step

    @property
    def updates(self) -> int:
        return self.updater.updates

    @property
    def progress(self) -> float:
        """Share of the training, up to the start of a collect that is not complete."""
        step = self.previous_step if self.cut else self.global_step
        return min(step / self.total_timesteps, 1.0)

    @property
    def over(self) -> bool:
        return self.stop_reason is not None or (self.global_step >= self.total_timesteps and not self.cut)

    @property
    def stopping(self) -> bool:
        return self.stop_reason is not None or (self.population is not None and self.population.stopping)

    def passed(self, interval: int) -> bool:
        """Whether the last iteration of the training loop crossed a multiple of `interval`."""
        return interval > 0 and self.global_step // interval > self.previous_step // interval

    def request_stop(self, reason: str, *, status: str = "stopped") -> None:
        """Ends training at the next step boundary. With the status "stopped", the same command continues the run.

        The first reason is kept, except that the end of a run replaces an interruption (status "stopped").
        """
        if status not in ENDS:
            raise ValueError(f"status of request_stop must be one of {', '.join(ENDS)}, got {status!r}")
        if not isinstance(reason, str) or not reason.strip():
            raise ValueError(f"request_stop needs a reason in words, such as 'no progress', got {reason!r}")
        if self.stop_reason is None or (self.status == "stopped" and status != "stopped"):
            self.stop_reason, self.status = reason, status
            self.lane.stop_by = time.monotonic() + CUT_SECONDS

    def forget_end(self) -> None:
        """Lets a run train on beyond the stop that was restored from its checkpoint."""
        self.stop_reason, self.status = None, "running"

    def state_dict(self) -> dict[str, Any]:
        best = None if self.best is None else list(self.best)
        # An interrupted run continues, so only the stop of a run that has ended is saved.
        ended = None if self.stop_reason is None or self.status == "stopped" else [self.status, self.stop_reason]
        left = {name: True for name in LEFT_FOR_RESUME if getattr(self, name)}
        return {
            "previous_step": self.previous_step, "evaluation": self.evaluation, "best": best, "metrics": self.metrics,
            "ended": ended, **left,
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.previous_step, self.evaluation = state["previous_step"], state["evaluation"]
        self.best = None if state["best"] is None else Best(*state["best"])
        self.cut, self.evaluation_due = (state.get(name, False) for name in LEFT_FOR_RESUME)
        self.metrics = state.get("metrics", {})
        if state.get("ended") is not None:
            self.status, self.stop_reason = state["ended"]
