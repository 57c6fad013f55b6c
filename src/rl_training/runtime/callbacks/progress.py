"""Shows progress: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from rl_training.messages import duration
from rl_training.runtime.engine import Callback
from rl_training.runtime.state import CollectResult, TrainerState

REFRESH_SECONDS = 0.2
LINE_SECONDS = 10.0  # between plain lines without a terminal
MARK_SECONDS = 1.0  # at least, between two marks of time and step
MARKS = 100  # about, in a long run


class HasProgress(Protocol):
    """One training run, or several shown as one."""

    @property
    def global_step(self) -> int: ...
    @property
    def total_timesteps(self) -> int: ...
    @property
    def metrics(self) -> Mapping[str, float | None]: ...
    @property
    def evaluation(self) -> Mapping[str, Any] | None: ...


class ShowProgress(Callback):
    """Prints step, rate, remaining time and returns to stderr."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(file=sys.stderr)
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._start, self._shown = 0.0, 0.0
        self._marks: deque[tuple[float, int]] = deque([(0.0, 0)])
        self._doing, self._waited = "", False

    def on_train_start(self, state: HasProgress) -> None:
        self._restart(time.monotonic(), state.global_step)
        if self.console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
            self._bar = Progress(*columns, TimeRemainingColumn(), console=self.console, transient=True)
            self._bar.start()
            self._task = self._bar.add_task("", total=state.total_timesteps, completed=state.global_step)

    def on_collect_end(self, state: TrainerState, result: CollectResult) -> None:
        self._doing = result.doing

    def on_step_end(self, state: HasProgress) -> None:
        now = time.monotonic()
        if self._waited:  # the wait is no part of the rate
            self._restart(now, state.global_step)
        if now - self._shown < (REFRESH_SECONDS if self._bar else LINE_SECONDS):
            return
        self._shown = now
        if self._bar:
            self._bar.update(self._task, completed=state.global_step, description=self.line(state))
        else:
            line = "  ".join(filter(None, (self.line(state), self.left(state))))
            self.console.print(line, highlight=False, soft_wrap=True)
        if now - self._marks[-1][0] >= max(MARK_SECONDS, (now - self._start) / MARKS):
            self._marks.append((now, state.global_step))

    def _restart(self, now: float, step: int) -> None:
        self._start = self._shown = now
        self._marks, self._waited = deque([(now, step)]), False

    def waiting(self, text: str) -> None:
        """Shows what the run waits for, until the next step."""
        self._waited = True
        if self._bar:
            self._bar.update(self._task, description=text)
        else:
            self.console.print(text, highlight=False, soft_wrap=True)

    def on_train_end(self, state: HasProgress) -> None:
        if self._bar:
            self._bar.stop()

    def rate(self, state: HasProgress) -> float:
        """Steps per second in the later half of the run so far: the first steps, without updates, are often faster."""
        now = time.monotonic()
        while len(self._marks) > 1 and self._marks[1][0] <= (self._start + now) / 2:
            self._marks.popleft()
        then, step = self._marks[0]
        return (state.global_step - step) / max(now - then, 1e-9)

    def left(self, state: HasProgress) -> str:
        """The time left; empty before the first step."""
        steps = max(state.total_timesteps - state.global_step, 0)  # the last collection may go beyond the total
        rate = self.rate(state)
        return f"about {duration(round(steps / rate))} left" if rate else ""

    def line(self, state: HasProgress) -> str:
        fields = [f"step {state.global_step:,} of {state.total_timesteps:,}", f"{self.rate(state):,.0f}/s"]
        fields += [self._doing] if self._doing else []
        evaluation = None if state.evaluation is None else state.evaluation["return_mean"]
        scores = {"return": state.metrics.get("episode_return"), "evaluation": evaluation}
        fields += [f"{label} {value:.4g}" for label, value in scores.items() if value is not None]
        return "  ".join(fields)
