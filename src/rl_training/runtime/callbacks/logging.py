"""metrics.jsonl and TensorBoard: the one place where a metric leaves the device."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rl_training.envs.group import Episode
from rl_training.runtime.engine import Callback
from rl_training.runtime.state import CollectResult, DivergedError, TrainerState
from rl_training.types import Metrics, UpdateResult

TIME_FIELDS = ("time", "steps_per_second", "updates_per_second")  # what two equal runs may differ in
Row = dict[str, Any]


class MetricsFile:
    """Append-only JSON lines; opened again it is cut back to a step, so that resume writes no row twice."""

    def __init__(self, path: Path, *, keep_until: int | None = None) -> None:
        if keep_until is not None and path.exists():
            kept = [line for line in path.read_text().splitlines() if _step_of(line) <= keep_until]
            path.write_text("".join(f"{line}\n" for line in kept))
        self._file = path.open("w" if keep_until is None else "a", encoding="utf-8", buffering=1)

    def write(self, row: Row) -> None:
        self._file.write(json.dumps({**row, "time": time.time()}) + "\n")

    def close(self) -> None:
        self._file.close()


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf  # a line that a crash cut short


class MembersMetrics(dict[str, Tensor]):
    """A population's metrics, [members] each; read from the device once for all members."""

    @cached_property
    def numbers(self) -> dict[str, list[float]]:
        members = max(value.numel() for value in self.values())
        together = torch.stack([value.float().expand(members) for value in self.values()])
        return dict(zip(self, together.tolist(), strict=True))


class LogMetrics(Callback):
    """Writes a row at each interval: the last metrics of lane and update, the mean of episodes since the last row."""

    name = "log"

    def __init__(self, interval: int, *writers: Callable[[Row], None], member: int | None = None) -> None:
        self.interval, self.writers, self.member = interval, writers, member
        self.latest: Metrics = {}  # of an update
        self.others: Metrics = {}  # of phases that the latest update did not have
        self.fitted: Metrics = {}  # of the lane
        self.episodes: list[Episode] = []
        self._clock = (time.perf_counter(), 0, 0)

    def on_train_start(self, state: TrainerState) -> None:
        self._clock = (time.perf_counter(), state.global_step, state.updates)

    def on_collect_end(self, state: TrainerState, result: CollectResult) -> None:
        self.episodes += result.episodes
        self.fitted = {**self.fitted, **result.metrics}

    def on_update_end(self, state: TrainerState, result: UpdateResult) -> None:
        if missing := self.latest.keys() - result.metrics.keys():
            self.others = {**self.others, **{name: self._mine(self.latest[name]) for name in missing}}
        self.latest = result.metrics

    def on_step_end(self, state: TrainerState) -> None:
        if not (state.passed(self.interval) or state.global_step >= state.total_timesteps):
            return
        state.metrics = self._metrics(state)
        row = {"step": state.global_step, "updates": state.updates, **state.metrics, **self._rates(state)}
        for write in self.writers:
            write(row)
        self.episodes = []

    def _metrics(self, state: TrainerState) -> dict[str, float | None]:
        numbers = self.last()
        wrong = [name for name, value in numbers.items() if not math.isfinite(value)]
        if wrong:
            raise DivergedError(
                f"not finite at step {state.global_step}: {', '.join(wrong)}; likely by a learning rate that is too "
                "high, rewards of huge size, or broken rows in the data"
            )
        episodes: dict[str, float | None] = {}
        if self.episodes:
            episodes["episode_return"] = sum(e.return_ for e in self.episodes) / len(self.episodes)
            episodes["episode_length"] = sum(e.length for e in self.episodes) / len(self.episodes)
        return {**numbers, **episodes}

    def last(self) -> dict[str, float]:
        """The last metrics as numbers: the one place where the device is waited for."""
        if isinstance(self.latest, MembersMetrics) and self.member is not None:
            mine = {name: values[self.member] for name, values in self.latest.numbers.items()}
            return {**_numbers(self.others), **mine}
        return _numbers({**self.fitted, **self.others, **self.latest})

    def _mine(self, value: Tensor) -> Tensor:
        return value[self.member] if isinstance(self.latest, MembersMetrics) and value.dim() else value

    def _own(self) -> Metrics:
        return {**self.others, **{name: self._mine(value) for name, value in self.latest.items()}}

    def _rates(self, state: TrainerState) -> dict[str, float]:
        now, (then, step, updates) = time.perf_counter(), self._clock
        self._clock = (now, state.global_step, state.updates)
        seconds = max(now - then, 1e-9)
        return {
            "steps_per_second": (state.global_step - step) / seconds,
            "updates_per_second": (state.updates - updates) / seconds,
        }

    def state_dict(self) -> dict[str, Any]:
        return {"latest": self._own(), "fitted": self.fitted, "episodes": [list(episode) for episode in self.episodes]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.latest, self.fitted = state["latest"], state["fitted"]
        self.episodes = [Episode(*episode) for episode in state["episodes"]]


def _numbers(metrics: Metrics) -> dict[str, float]:
    values = torch.stack([value.float().mean() for value in metrics.values()]).tolist() if metrics else []
    return dict(zip(metrics, values, strict=True))


def tensorboard_writer(directory: Path, *, resume_at: int) -> Callable[[Row], None] | None:
    """Writes the numbers of a row as scalars; None where TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    writer = SummaryWriter(str(directory), purge_step=resume_at or None)

    def write(row: Row) -> None:
        numbers = {**row, **row.get("evaluation", {})}
        for name, value in numbers.items():
            if isinstance(value, int | float) and name not in ("step", "time"):
                writer.add_scalar(name, value, row["step"])

    return write
